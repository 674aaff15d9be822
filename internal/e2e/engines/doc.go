// Package engines holds what Grapevine says of engines to the engines' own code. It has
// tests only; make test-engines runs them, with parts that make setup-engines installs.
//
//  1. vLLM's block managers of several versions run sessions and say what they publish
//     and what they would reuse (managers_test.go, testdata/managers.py).
//     What that makes of each family of models is a table of its own (coverage_test.go).
//  2. vLLM's own code renders requests (render_test.go, testdata/render.py).
//  3. Two whole vLLMs on the CPU answer chats behind a real Envoy, and report what they
//     found cached (real_test.go).
//  4. One vLLM prefills, another pulls its cache and answers behind the sidecar
//     (pair_test.go).
//
// Each test prints its table. What an engine's version does not have is named there.
package engines
