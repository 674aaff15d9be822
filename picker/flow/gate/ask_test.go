package gate

import (
	"context"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/picker/request"
)

// TestWork checks that longer prompts and answers are more work, and that an answer without a limit,
// or with one that clients set out of caution, counts as a usual one.
func TestWork(t *testing.T) {
	of := func(input, most int) float64 { return work(&request.Request{InputTokens: input, MaxTokens: most}) }
	if of(2000, 100) <= of(1000, 100) || of(1000, 200) <= of(1000, 100) {
		t.Error("work() does not grow with the prompt and the answer")
	}
	if of(1000, 0) != of(1000, 256) || of(1000, 100_000) != of(1000, 256) || of(1000, 1024) == of(1000, 256) {
		t.Errorf("work() = %v without a limit, %v with 100,000 and %v with 1,024 tokens, want %v for the first two", of(1000, 0), of(1000, 100_000), of(1000, 1024), of(1000, 256))
	}
}

// TestLongestWait checks that a request waits no longer than the shortest of its own limits: its TTL, its
// maximum wait and its deadline.
func TestLongestWait(t *testing.T) {
	now := time.Unix(1000, 0)
	g := &Gate{o: Options{Now: func() time.Time { return now }}}
	for name, c := range map[string]struct{ ttl, most, deadline, waited, want time.Duration }{
		"none":                      {},
		"TTL":                       {ttl: 3 * time.Second, most: 5 * time.Second, deadline: 4 * time.Second, want: 3 * time.Second},
		"maximum wait":              {ttl: 5 * time.Second, most: 3 * time.Second, deadline: 4 * time.Second, want: 3 * time.Second},
		"maximum wait alone":        {most: 3 * time.Second, want: 3 * time.Second},
		"deadline":                  {ttl: 5 * time.Second, most: 4 * time.Second, deadline: 3 * time.Second, want: 3 * time.Second},
		"deadline alone":            {deadline: 3 * time.Second, want: 3 * time.Second},
		"moved, TTL":                {ttl: 3 * time.Second, waited: 9 * time.Second, want: 3 * time.Second},
		"moved, maximum wait":       {most: 3 * time.Second, waited: 9 * time.Second, want: 12 * time.Second},
		"moved, deadline":           {deadline: 3 * time.Second, waited: 9 * time.Second, want: 12 * time.Second},
		"deadline that is past now": {ttl: 5 * time.Second, deadline: -time.Second, want: time.Millisecond},
	} {
		ctx, cancel := t.Context(), func() {}
		if c.deadline != 0 {
			ctx, cancel = context.WithDeadline(ctx, now.Add(c.deadline))
		}
		if got := g.ask(ctx, &request.Request{QueueTTL: c.ttl, MaxWait: c.most, Waited: c.waited}).TTL; got != c.want {
			t.Errorf("%s: TTL %v, want %v", name, got, c.want)
		}
		cancel()
	}
}
