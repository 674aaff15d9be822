package endpoint

import (
	"fmt"
	"net/netip"
	"time"
)

var t0 = time.Unix(1_700_000_000, 0)

// specs returns n endpoints at 10.0.x.y:8000.
func specs(n int) []Spec {
	out := make([]Spec, n)
	for i := range out {
		addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 8000)
		out[i] = Spec{Name: fmt.Sprintf("e%d", i), Namespace: "default", Addr: addr}
	}
	return out
}

func newPool(n int) *Pool {
	p := NewPool(PoolOptions{Now: func() time.Time { return t0 }})
	p.Set(specs(n))
	return p
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
