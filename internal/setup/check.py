"""Reads `go test -json` and prints what `go test` prints, and at the end how many
tests `make check` leaves to `make test` (internal/parts.Full)."""
import collections
import json
import sys

said = collections.defaultdict(list)  # by package and test
left = 0
for line in sys.stdin:
    try:
        event = json.loads(line)
    except ValueError:
        print(line, end="")  # of the compiler
        continue
    package, test, action = event.get("Package"), event.get("Test"), event.get("Action")
    key = package, test
    if action in ("output", "build-output"):
        if action == "build-output" or test is None and event["Output"].startswith(("ok", "FAIL\t", "panic")):
            print(event["Output"], end="", flush=True)
        elif not event["Output"].startswith("=== "):
            said[key].append(event["Output"])
    elif action in ("pass", "fail", "skip"):
        text = "".join(said.pop(key, ()))
        if action == "fail":
            print(text, end="", flush=True)
        left += action == "skip" and "left to `make test`" in text
print(f"check: {left} tests that take long or need other programs are left to `make test`")
