// Package warmup sends prompts to idle engines, so that they hold them before anybody
// waits for that.
//
//  1. Takes says, before a decision, whether its request could be sent: a prompt that came
//     whole, and room for one more.
//  2. Send copies the body within the process's memory and returns (sender.go).
//  3. A goroutine makes a request of one token of it (body.go), asks the engine, and tells
//     how that ended. It is not tried again.
//
// It does not choose: a scorer asks for a warm-up, and the scheduler books it.
//
// Invariants: at most most warm-ups run at a time, each for no longer than timeout; of the
// client's headers engines see its authorization alone; redirects are not followed, and
// proxies of the environment not used. What fails is counted, and nobody else notices.
//
// Open starts no goroutine, Send one for each warm-up; Close ends them and waits. A Sender
// is safe for concurrent use.
package warmup
