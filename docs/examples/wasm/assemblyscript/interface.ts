// The parts of the interface that every plugin in AssemblyScript needs. Copy this file as it is.

// alloc reserves memory that the picker writes to. The picker keeps it.
export function alloc(size: usize): usize {
  return heap.alloc(size);
}

// listFacts returns names of facts, separated by white space, as the picker reads them.
export function listFacts(names: string): usize {
  return zeroEnded(names);
}

// readText returns a text that the picker wrote.
export function readText(at: usize, size: usize): string {
  return String.UTF8.decodeUnsafe(at, size);
}

// refuse returns the reason why a plugin does not start, as the picker reads it.
export function refuse(reason: string): usize {
  return zeroEnded(reason);
}

function zeroEnded(text: string): usize {
  const data = String.UTF8.encode(text, true);
  __pin(changetype<usize>(data));
  return changetype<usize>(data);
}
