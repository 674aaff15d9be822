// Package remote has engines render prompts: those that no template of ours makes, and
// fixed chats, to see whether templates here make of them what engines do.
//
//  1. Renderer.Render looks for the body among those rendered before (cache.go).
//  2. It asks one of the engines that serve the model, within a budget of time and
//     of renderings at a time, unless too many failed in a row: the breaker then
//     stays open for a while (renderer.go, cache.go).
//  3. The ids of the answer are decoded into text space; where the prompt holds
//     media they end before the first of it.
//
// Fixed chats (chats.go) go to each engine, now and then: Prober chooses which is next
// (prober.go), Engine.Tokens finds a route by which it tells its tokens (ask.go), and Compare
// finds the first byte that differs (compare.go).
//
// What it does not do: choose when an engine is asked; package prompt does.
//
// An engine is not trusted: answers are bounded, redirects not followed, proxies of
// the environment not used. A Renderer is safe for concurrent use.
package remote
