// Checks manifests beside the page, which stays responsive meanwhile.

import { check } from "./check.js";

self.onmessage = async ({ data: { number, manifest } }) => {
  const bytes = new Uint8Array(await manifest.arrayBuffer());
  const started = performance.now();
  try {
    self.postMessage({ number, ...check(bytes), milliseconds: performance.now() - started });
  } catch (error) {
    self.postMessage({ number, failed: `${error}` });
  }
};
