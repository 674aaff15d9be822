// Package served keeps the pool's information on models and engine versions up to date.
//
//  1. [Open] starts one goroutine. It reads GET /v1/models of every endpoint when it joins or
//     restarts, every half minute, and soon after [Reader.Recheck].
//  2. [Decode] decodes the response: the base model, its aliases, and LoRA adapters with their
//     parent.
//  3. endpoint.Pool.SetModels adds the list to the pool's snapshot.
//  4. GET /version is read with each list (/server_info for SGLang, every five minutes). An
//     engine with another version is a new engine: endpoint.Pool.Renew.
//  5. A request for a model that no endpoint is known to serve calls [Reader.Confirm], which
//     makes the lists be read again before the request is refused.
//
// The package chooses no endpoints. An endpoint without a readable list keeps its previous one: a
// failure is counted and never treated as an empty list. An endpoint is asked at most four times a
// second, however many requests need a confirmation.
package served
