package cluster_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/cluster/clustertest"
)

// backlog shares the number of queued requests per flow of each replica. It is a complete state,
// from the wire format to the reader of its values.
type backlog struct {
	gauge *cluster.Gauge

	mu     sync.RWMutex
	others map[string]map[string]uint64 // by origin, then flow
}

// newBacklog registers the state. The version identifies the encoding of values. The next encoding
// gets 2, and Merge must then read version 1 too, for as long as older replicas may run.
func newBacklog(n *cluster.Node) *backlog {
	b := &backlog{others: map[string]map[string]uint64{}}
	b.gauge = n.Gauge("backlog", 1, b)
	return b
}

// Set changes this replica's value.
func (b *backlog) Set(flow string, waiting uint64) error {
	if waiting == 0 {
		return b.gauge.Set(flow, nil)
	}
	return b.gauge.Set(flow, binary.AppendUvarint(nil, waiting))
}

// Merge stores another replica's value.
func (b *backlog) Merge(origin string, version uint64, flow string, value []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if value == nil {
		delete(b.others[origin], flow)
		return nil
	}
	v, n := binary.Uvarint(value)
	if version != 1 || n <= 0 {
		return errors.New("backlog: unreadable value")
	}
	if b.others[origin] == nil {
		b.others[origin] = map[string]uint64{}
	}
	b.others[origin][flow] = v
	return nil
}

// Drop removes a departed replica's values.
func (b *backlog) Drop(origin string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.others, origin)
}

// Others returns the total of all other replicas.
func (b *backlog) Others(flow string) (sum uint64) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for _, t := range b.others {
		sum += t[flow]
	}
	return sum
}

// The type backlog above is all that a new shared state needs.
func ExampleNode_Gauge() {
	h := clustertest.NewHub()
	open := func(name string) (*cluster.Node, *backlog) {
		self := cluster.NewMember(name, "v1")
		n := cluster.New(cluster.Options{Self: self, Bus: h.Bus(self)})
		b := newBacklog(n)
		if err := n.Open(context.Background()); err != nil {
			panic(err)
		}
		return n, b
	}
	a, atA := open("a")
	defer a.Close()
	b, atB := open("b")
	defer b.Close()
	_ = atA.Set("gold", 3)
	for atB.Others("gold") == 0 {
		time.Sleep(time.Millisecond)
	}
	fmt.Println(atA.Others("gold"), atB.Others("gold"))
	// Output: 0 3
}

// TestGaugeIsQuick: a change reaches all replicas within 20 ms, and a hundred changes in one window
// use one frame.
func TestGaugeIsQuick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := clustertest.NewHub()
		selfA, selfB := cluster.NewMember("a", ""), cluster.NewMember("b", "")
		a := cluster.New(cluster.Options{Self: selfA, Bus: h.Bus(selfA)})
		b := cluster.New(cluster.Options{Self: selfB, Bus: h.Bus(selfB)})
		atA, atB := newBacklog(a), newBacklog(b)
		for _, n := range []*cluster.Node{a, b} {
			if err := n.Open(t.Context()); err != nil {
				t.Fatal(err)
			}
			defer n.Close()
		}
		time.Sleep(time.Second)
		frames := func() (n uint64) {
			for _, f := range a.Status().Peers[0].Traffic {
				if f.State == "backlog" {
					n += f.FramesOut
				}
			}
			return n
		}
		was := frames()
		for i := range uint64(100) {
			_ = atA.Set("gold", i)
		}
		time.Sleep(20 * time.Millisecond)
		if got := atB.Others("gold"); got != 99 {
			t.Errorf("b has %d", got)
		}
		if n := frames() - was; n != 1 {
			t.Errorf("%d frames", n)
		}
	})
}
