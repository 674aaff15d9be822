// Package prefix says what each endpoint holds of a prompt, and whether that
// is to be believed.
//
//  1. Models is the picker's Prompts: it renders a request's prompt as the
//     engine does, and cuts the raw prompt into chunks (models.go, ratio.go).
//  2. Matcher is the picker's Matcher: it asks the precise index and the
//     approximate one, and decides per endpoint whose answer counts
//     (matcher.go, align.go).
//  3. When a request has ended, what was predicted is compared with the cached
//     tokens that its engine reports (audit.go). A record of wrong predictions
//     makes the endpoint's events be read anew, a record of right ones ends a
//     doubt, and blocks that were not there are forgotten (judge.go).
//  4. The approximate index is sized per endpoint by the configuration or the
//     engine's own figures (capacity.go).
//
// It does not read event streams, talk to other replicas, or choose: what has
// been read of an endpoint is told to it by Options.Read, and what follows from
// an audit goes out through Options.Distrust and Options.Vouch.
//
// Requests are not changed after Models.Fill. Matcher starts no goroutine, takes
// the time from Options.Now, and can be used in virtual time. All methods are
// safe for concurrent use.
package prefix
