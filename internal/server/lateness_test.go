package server

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
)

// FuzzReplicaValues: what another replica says of itself is taken or refused as a whole, and a value
// that is taken is within its limits.
func FuzzReplicaValues(f *testing.F) {
	f.Add(binary.AppendUvarint(nil, 120))
	f.Add(binary.AppendUvarint(nil, 1<<62))
	f.Add([]byte{0x80})
	f.Add([]byte("10.0.0.2:9002"))
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, value []byte) {
		for _, key := range []string{keyLate, keyExtProc} {
			replicaValue(t, key, value)
		}
	})
}

func replicaValue(t *testing.T, key string, value []byte) {
	x := new(xdsShare)
	if err := x.Merge("b", 1, keyExtProc, []byte("10.0.0.1:9002")); err != nil {
		t.Fatal(err)
	}
	before := len(x.lates.Of(keyLate))
	err := x.Merge("b", 1, key, value)
	lates, count := x.otherPaces()
	if err != nil && (count != 1 || len(lates) != before) {
		t.Errorf("a refused value changed the state: %v, %d replicas", lates, count)
	}
	for _, l := range lates {
		if l < 0 || l > time.Hour {
			t.Errorf("lateness of %v", l)
		}
	}
	x.Drop("b")
	if lates, count = x.otherPaces(); len(lates) > 0 || count > 0 {
		t.Errorf("a departed replica counts: %v, %d", lates, count)
	}
}
