// Package remote lets engines render prompts: prompts that no local template can render, and fixed
// chats that verify the local templates.
//
//  1. Renderer.Render looks up the body in a cache of recent renderings (cache.go).
//  2. On a miss it queries one of the engines that serve the model, within limits on time and
//     concurrency. After too many consecutive failures the breaker stays open for a while
//     (renderer.go, cache.go).
//  3. The token ids of the response are decoded into text space. If the prompt holds media,
//     they end before the first medium.
//
// Each engine renders the fixed chats (chats.go) from time to time: Prober selects the next engine
// (prober.go), Engine.Tokens finds a supported route (ask.go), and Compare finds the first
// differing byte (compare.go).
//
// Package prompt decides when to query an engine.
//
// Engines are untrusted: responses are bounded, redirects are not followed, and proxy environment
// variables are ignored. A Renderer is safe for concurrent use.
package remote
