// Package warmup sends prompts to idle engines, so that these have them cached before a request
// needs them.
//
//  1. Takes reports, before a decision, whether its request could be sent: the prompt is
//     complete, and there is capacity for another warm-up.
//  2. Send copies the body within the process's memory budget and returns (sender.go).
//  3. A goroutine converts it to a request of one token (body.go), sends it to the engine and
//     reports the result. It does not retry.
//
// The package does not choose endpoints: a scorer requests a warm-up and the scheduler accounts for
// it.
//
// Invariants: at most `most` warm-ups run at a time, each for at most `timeout`. Of the client's
// headers, engines receive only the authorization. Redirects are not followed, and proxies from the
// environment are not used. Failures are counted and have no other effect.
//
// Open starts no goroutine and Send one per warm-up; Close cancels them and waits. A Sender is safe
// for concurrent use.
package warmup
