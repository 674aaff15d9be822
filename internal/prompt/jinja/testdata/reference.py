"""Renders templates with Python's Jinja2, one JSON request and one JSON answer
per line."""
import json
import sys
from datetime import datetime

from environment import env

cache = {}

for line in sys.stdin:
    req = json.loads(line)
    env.globals["strftime_now"] = lambda f: datetime.fromtimestamp(req.get("now", 0)).strftime(f)
    try:
        src = req["template"]
        if src not in cache:
            cache[src] = env.from_string(src)
        answer = {"out": cache[src].render(**req["vars"])}
    except Exception as e:
        answer = {"error": "%s: %s" % (type(e).__name__, e)}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
