// Package discovery finds a pool's endpoints, objectives and model rewrites. A [Source] passes
// everything that it [Found] to its [Sink], each time it changes. This package has a source for
// files written by users or tools, for engines outside of Kubernetes. Other sources have their own
// packages.
//
// The file is YAML or JSON:
//
//	defaults:                 # optional; defaults for endpoints
//	  namespace: default
//	  port: 8000
//	  model: Qwen/Qwen3-8B    # a name, or a list of names
//	  engine: vllm            # vllm, sglang, trtllm-serve, triton-tensorrt-llm
//	  labels: {zone: a}       # merged under each endpoint's own
//	  events:
//	    port: 5557            # ZMQ PUB socket; rank r publishes at port + r
//	    replayPort: 5558      # ZMQ ROUTER socket for replays; default: none
//	    topic: kv-events      # subscription prefix; default: everything
//	    ranks: 1              # data-parallel ranks that publish
//	    dialsIn: true         # instead of port: its publisher connects to the picker
//	endpoints:
//	  - name: vllm-0          # optional; default: address:port
//	    namespace: prod       # optional
//	    address: 10.0.0.7     # IPv4, IPv6, or a host name
//	    port: 8000            # number, or the same in quotes
//	    labels:
//	      llm-d.ai/role: decode
//	    metrics: http://10.0.0.7:9400/metrics   # optional; default: /metrics at address:port
//	  - address: engines.internal   # each address of the name is an endpoint
//	    events: null                # none, regardless of the defaults
//
// name, namespace, address, port and labels are the format of other pickers; defaults, model,
// engine, events and metrics are extensions. Without events, here and in the defaults, an endpoint
// publishes none.
//
// The main path:
//
//  1. Parse reads a file into Endpoints, strictly: every unknown field, wrong type, invalid
//     address or port, and duplicate is a Problem with line, column and hint. All are found in
//     one pass.
//  2. OpenFile reads the file, resolves its host names and publishes the specs.
//  3. A change of the file (write, rename, swap of a symbolic link) or of a name's addresses
//     produces a new list, which is published if it differs.
//  4. If the file vanishes or has problems, or a name does not resolve, the list stays. Status,
//     metrics and the log report it.
//
// The package does not connect to endpoints and does not track their health. Parse is pure. A File
// is safe for concurrent use. It publishes one list at a time from its own goroutine, except the
// first one, which OpenFile publishes.
package discovery
