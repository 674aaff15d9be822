// Package engines compares Grapevine's view of engines with the engines' own code. It contains only
// tests; make test-engines runs them with the parts that make setup-engines installs.
//
//  1. The block managers of several vLLM versions run sessions, publish events and report the
//     blocks that they would reuse (managers_test.go, testdata/managers.py). coverage_test.go
//     prints the result per family of models.
//  2. vLLM's own code renders requests (render_test.go, testdata/render.py).
//  3. Two complete vLLMs on the CPU answer chats behind a real Envoy and report their cache hits
//     (real_test.go).
//  4. One vLLM prefills; another one pulls its cache and answers behind the sidecar (pair_test.go).
//
// Each test prints its table, including features that an engine version does not have.
package engines
