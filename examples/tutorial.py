"""From a Hugging Face folder to a validated package to text.

    python tutorial.py MODEL_DIR OUT PROMPT

MODEL_DIR holds a Llama or Qwen2 whose widths are multiples of 64.
"""

import sys

from nibblespec.conformance import validate
from nibblespec.optimized import load_model, speculate
from nibblespec.optimized.convert import convert
from transformers import AutoTokenizer

model_dir, out, prompt = sys.argv[1:]

convert(model_dir, out, to="bitnest", group_size=64)
for finding in validate(out, level="tensors"):
    print(finding.severity, finding.requirement, finding.message)

model = load_model(out)
tokenizer = AutoTokenizer.from_pretrained(out)
ids = tokenizer(prompt, return_tensors="pt").input_ids
found = speculate(model, ids, gamma=3, max_new_tokens=40)

print(prompt + tokenizer.decode(found.tokens))
print(f"{len(found.tokens)} tokens from {found.rounds} runs of the target after the prompt")
