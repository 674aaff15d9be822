// Package continuation continues a streamed completion at another engine after its own has died. It
// decides whether that is safe, collects the tokens that the client has, builds the request for the
// rest, and turns the second answer into the rest of the first. It does no I/O.
//
//  1. New checks the request. Only fields with an effect that does not depend on earlier output are
//     accepted; an unknown field prevents the continuation.
//  2. AskTokens adds return_token_ids to the request. Stream.Observe reads the token ids from the
//     answer and removes them from the events for the client.
//  3. After the death of the engine, Stream.Resume returns the request for the rest: the prompt and
//     the answer so far.
//  4. Rest.Event compares the prompt of the second answer with the tokens of the first, token by
//     token, before the client gets any of it. Then it returns events with the identity and the
//     counts of the first answer.
package continuation
