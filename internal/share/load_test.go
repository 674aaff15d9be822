package share

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// TestLoadOnTheWire: what a replica says of its book comes out as it went in,
// dated by the reader; a peer of an older version says less.
func TestLoadOnTheWire(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	said := endpoint.Load{
		Requests: 5, Waiting: 2, Prefill: 700, Pairs: 90, Tokens: 800, Context: 100, Rate: .5, Busy: .25,
		LastFirst: now.Add(-time.Second).UnixNano(),
	}
	f := func(b []byte, want endpoint.Load) {
		t.Helper()
		want.RatesAt = now.UnixNano()
		got, err := readLoad(b, now)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
	b := appendLoad(nil, said, now)
	f(b, said)
	older := said
	older.Busy = 0
	f(b[:len(b)-8], older)
	f(appendLoad(nil, endpoint.Load{Rate: 1}, now), endpoint.Load{Rate: 1})
	said.Busy = -1
	for _, bad := range [][]byte{nil, b[:4], b[:len(b)-1], appendLoad(nil, said, now)} {
		if l, err := readLoad(bad, now); err == nil {
			t.Errorf("%x was read as %+v", bad, l)
		}
	}
}
