// Package discovery finds a pool's endpoints, and what objectives and models
// mean there. A [Source] tells all that it [Found], each time that this changes.
// The one in here reads a file that people or their tools write, for engines
// outside of Kubernetes; other sources have packages of their own.
//
// The file is YAML or JSON:
//
//	defaults:                 # optional; for endpoints that do not say otherwise
//	  namespace: default
//	  port: 8000
//	  model: Qwen/Qwen3-8B    # a name, or a list of names
//	  engine: vllm            # vllm, sglang, trtllm-serve, triton-tensorrt-llm
//	  labels: {zone: a}       # merged under each endpoint's own
//	  events:
//	    port: 5557            # ZMQ PUB socket; rank r publishes at port + r
//	    replayPort: 5558      # ZMQ ROUTER socket for replays; absent: none
//	    topic: kv-events      # subscription prefix; absent: everything
//	    ranks: 1              # data-parallel ranks that publish
//	    dialsIn: true         # in place of port: its publisher connects to the picker
//	endpoints:
//	  - name: vllm-0          # optional; absent: address:port
//	    namespace: prod       # optional
//	    address: 10.0.0.7     # IPv4, IPv6, or a host name
//	    port: 8000            # number, or the same in quotes
//	    labels:
//	      llm-d.ai/role: decode
//	    metrics: http://10.0.0.7:9400/metrics   # optional; absent: /metrics at address:port
//	  - address: engines.internal   # each address of the name is an endpoint
//	    events: null                # none, whatever the defaults say
//
// name, namespace, address, port and labels are the format that other pickers
// read; defaults, model, engine, events and metrics are additions. Without
// events, here and in the defaults, an endpoint publishes none.
//
// The main path:
//
//  1. Parse reads a file into Endpoints, strictly: every unknown field, wrong
//     type, bad address or port and every duplicate is a Problem with line,
//     column and hint, and all are found at once.
//  2. OpenFile reads the file, resolves its host names and tells the specs.
//  3. A change of the file (write, rename, swap of a symbolic link) or of a
//     name's addresses makes a new list, which is told when it differs.
//  4. A file that vanishes or has problems leaves the list as it is, and so does
//     a name that does not resolve; Status, metrics and the log say so.
//
// It does not talk to endpoints and does not know whether they live. Parse is
// pure; a File is safe for concurrent use, and tells one list at a time, from its own
// goroutine except for the first, which it tells inside of OpenFile.
package discovery
