// A Grapevine plugin in AssemblyScript: requests with a tier use engines of that tier whose queue is
// short. The parameter config has the longest queue of each tier: gold=4 silver=16.

import { listFacts, readText, refuse } from "./interface";
export { alloc as grapevine_v1_alloc } from "./interface";

// The facts that the rule reads, in the order of the fields below.
const facts = listFacts(`
  request.headers["x-tier"]
  endpoint.labels["tier"]
  load.waiting
`);

@unmanaged class Request { tierAt: u32; tierSize: u32; }
@unmanaged class Endpoint { tierAt: u32; tierSize: u32; waiting: f64; }

const longest = new Map<string, f64>();

export function grapevine_v1_facts(): usize { return facts; }

export function grapevine_v1_start(at: usize, size: u32): usize {
  const items = readText(at, size).split(" ");
  for (let i = 0; i < items.length; i++) {
    if (items[i] == "") continue;
    const parts = items[i].split("=");
    if (parts.length != 2 || isNaN(parseFloat(parts[1]))) return refuse("want TIER=NUMBER, not " + items[i]);
    longest.set(parts[0], parseFloat(parts[1]));
  }
  return 0;
}

export function grapevine_v1_filter(request: Request, endpoints: usize, n: u32, keep: usize): i32 {
  const tier = readText(request.tierAt, request.tierSize);
  const limit = longest.has(tier) ? longest.get(tier) : Infinity;
  for (let k: u32 = 0; k < n; k++) {
    const e = changetype<Endpoint>(endpoints + k * offsetof<Endpoint>());
    const same = tier == "" || e.tierSize == request.tierSize && memory.compare(e.tierAt, request.tierAt, e.tierSize) == 0;
    store<u8>(keep + k, u8(same && e.waiting <= limit));
  }
  return 0;
}
