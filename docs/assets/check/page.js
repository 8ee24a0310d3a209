// The page "Check a manifest": takes a file or a text, and shows what the worker finds in it.

import { addresses, formats, samples } from "./formats.js";

const LISTED = 12; // places of one statement that are listed one by one

const form = document.getElementById("check");
const file = document.getElementById("check-file");
const text = document.getElementById("check-text");
const zone = document.getElementById("check-zone");
const verdict = document.getElementById("check-verdict");
const findings = document.getElementById("check-findings");

const worker = new Worker(new URL("worker.js", import.meta.url), { type: "module" });
let latest = 0;
let name = ""; // of what is checked

function start(manifest, called) {
  latest += 1;
  name = called;
  findings.replaceChildren();
  form.setAttribute("aria-busy", "true");
  say("busy", `Checking ${name} …`);
  worker.postMessage({ number: latest, manifest });
}

worker.onmessage = ({ data }) => {
  if (data.number !== latest) return; // of a manifest that another one has replaced
  form.removeAttribute("aria-busy");
  if (data.failed) {
    say("bad", `The check itself failed (${data.failed}). Run nibblespec validate instead.`);
    return;
  }
  const { format, findings: found, complete } = data;
  if (found.length === 0) {
    say("good", `${name}: the structure is that of ${format}. ${rest(format)}`);
  } else {
    const count = `${complete ? "" : "at least "}${found.length.toLocaleString("en")}`;
    const noun = found.length === 1 ? "fault" : "faults";
    say("bad", `${name}: ${count} ${noun}${format ? ` in a manifest of ${format}` : ""}.`);
    show(found);
  }
};

worker.onerror = () => {
  form.removeAttribute("aria-busy");
  say("bad", "The check could not be started in this browser. Run nibblespec validate instead.");
};

function rest(id) {
  const { left } = formats.find((format) => format.id === id);
  return `${left} more statements about its values need the command line.`;
}

function say(state, message) {
  verdict.dataset.state = state;
  verdict.textContent = message;
}

function show(found) {
  for (const [requirement, all] of grouped(found)) {
    const heading = element("h3", {}, link(requirement), ` in ${places(all.length)}`);
    const rows = all.slice(0, LISTED).map((one) =>
      element(
        "tr",
        {},
        element("td", {}, element("code", {}, one.pointer || "the document")),
        element("td", {}, one.expected),
        element("td", {}, one.found),
      ),
    );
    const head = ["place", "expected", "found"].map((name) => element("th", { scope: "col" }, name));
    const table = element(
      "table",
      {},
      element("thead", {}, element("tr", {}, ...head)),
      element("tbody", {}, ...rows),
    );
    findings.append(heading, element("div", { className: "check-scroll", tabIndex: 0 }, table));
    if (all.length > LISTED) {
      findings.append(element("p", {}, `and ${(all.length - LISTED).toLocaleString("en")} more`));
    }
  }
}

function grouped(found) {
  const groups = new Map();
  for (const one of found) {
    if (!groups.has(one.requirement)) groups.set(one.requirement, []);
    groups.get(one.requirement).push(one);
  }
  return groups;
}

function places(count) {
  return count === 1 ? "one place" : `${count.toLocaleString("en")} places`;
}

function link(requirement) {
  return element("a", { href: addresses[requirement] }, requirement);
}

/** Make an element; texts stay texts, whatever a manifest has in them. */
function element(name, properties, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

file.addEventListener("change", () => {
  if (file.files.length > 0) start(file.files[0], file.files[0].name);
  file.value = ""; // the same file may be chosen again
});

form.addEventListener("submit", (event) => {
  event.preventDefault();
  start(new Blob([text.value]), "the text");
});

for (const button of form.querySelectorAll("button[data-sample]")) {
  button.addEventListener("click", () => {
    text.value = samples[button.dataset.sample];
    start(new Blob([text.value]), button.textContent.toLowerCase());
  });
}

zone.addEventListener("dragover", (event) => {
  event.preventDefault();
  zone.classList.add("check-over");
});
zone.addEventListener("dragleave", () => zone.classList.remove("check-over"));
zone.addEventListener("drop", (event) => {
  event.preventDefault();
  zone.classList.remove("check-over");
  const [dropped] = event.dataTransfer.files;
  if (dropped) start(dropped, dropped.name);
});
