package natsbus

import (
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// TestWorkOfMessages: the work for a message from NATS is proportional to its length, sealed or
// not.
func TestWorkOfMessages(t *testing.T) {
	sealed, plain := newTestSealer(t, "a", 7, key1), newTestSealer(t, "b", 7)
	for name, head := range map[string]string{
		"a sealed message that is not whole": string(newTestSealer(t, "c", 7, key1).seal("s", []byte("hello"))),
		"a message without a seal":           string(plain.seal("s", nil)),
		"a heartbeat":                        string(heartbeat{1, true, "n", "v", "a", true, "z"}.append(nil)),
		"a proof":                            string((&proof{Ask: challenge{1}}).append(nil)),
		"nothing":                            "",
	} {
		testkit.Linear(t, name, func(n int) func() {
			b := testkit.Repeated(n, head, "\x01", "")
			return func() { // accepted or rejected
				_, _ = sealed.open("s", b, maxUnproven)
				_, _ = plain.open("s", b, maxUnproven)
				_, _ = parseHeartbeat(b)
				_, _ = parseProof(b)
			}
		})
	}
}
