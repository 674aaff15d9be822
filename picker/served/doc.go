// Package served keeps the pool informed of which models its engines serve, and when an
// engine is another program than before.
//
//  1. [Open] starts one goroutine. It reads GET /v1/models of every endpoint when
//     it joins or starts again, every half minute after that, and soon after [Reader.Doubt].
//  2. [Decode] reads the answer: the base model, its aliases, and LoRA adapters
//     with their parent.
//  3. endpoint.Pool.SetModels makes the list part of the pool's snapshot.
//  4. GET /version is read with each list (/server_info of SGLang, every five minutes). An
//     engine of another version is another one: endpoint.Pool.Renew.
//  5. A request for a model that nobody is known to serve calls [Reader.Confirm],
//     which has the lists read again before the request is refused.
//
// It chooses nobody. An endpoint that gives no list, or one that cannot be read,
// is left as it was: a failure is counted, never taken for an empty list. An
// endpoint is asked at most four times a second, however many requests doubt it.
package served
