package federation

import (
	"fmt"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/federation/filter"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// TestWorkOfMessages: the work for a message of another cluster, or a hop token of a client, is
// proportional to its length. Longer input is split into several messages.
func TestWorkOfMessages(t *testing.T) {
	now := time.Unix(1e9, 0)
	b := hopsOf(t, "b", hopSecret)
	exports := func(n int, of func(e *ack)) string {
		m := fullSay()
		for i := range n {
			e := m.exports[0]
			e.Pool = PoolKey{"ns", fmt.Sprint(i)}
			of(&e)
			m.exports = append(m.exports, e)
		}
		m.exports = m.exports[1:]
		return string(m.append(nil))
	}
	wants := &ask{session: 1}
	for range 4 {
		wants.wants = append(wants.wants, want{PoolKey{"ns", "p"}, filter.Position{Epoch: 3, Since: 4, Row: 5}, 6})
	}
	for name, text := range map[string]string{
		"pools":     exports(MaxPools-1, func(*ack) {}),
		"endpoints": exports(4, func(e *ack) { e.Direct = make([]string, maxDirect) }),
		"groups":    exports(4, func(e *ack) { e.Ready = make([]Ready, maxGroups) }),
		"addresses": exports(4, func(e *ack) { e.EPPs = make([]Address, maxAddresses) }),
		"wants":     string(wants.append(nil)),
		"a part":    string((&partOf{session: 1, pool: PoolKey{"ns", "p"}, part: make([]byte, filter.MaxPart)}).append(nil)),
		"hops":      "1;a;b;1;1;",
	} {
		testkit.Linear(t, name, func(n int) func() {
			long := string(testkit.Repeated(min(n, MaxMessage), text[:min(3, n)], "\x01", ""))
			return func() { // accepted or rejected
				for left := n; left > 0; left -= len(text) {
					_, _ = decodeMessage([]byte(text))
					_, _ = b.Verify(text, now)
				}
				for left := n; left > 0; left -= len(long) {
					_, _ = decodeMessage([]byte(long))
					_, _ = b.Verify(long, now)
				}
			}
		})
	}
}
