//go:build linux

package clustertest_test

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"
)

// fault is the treatment of packets in transit.
type fault struct {
	loss  float64 // fraction of packets, 0 to 1
	delay time.Duration
}

var severed = fault{loss: 1}

// flow is the source, destination and protocol of a packet.
type flow struct {
	from, to netip.Addr
	udp      bool
}

// rule returns the fault for the packets of a flow.
type rule func(flow) fault

func healthy(flow) fault { return fault{} }

// wire forwards packets between TUN devices.
type wire struct {
	wg sync.WaitGroup

	mu     sync.Mutex
	ports  map[netip.Addr]*port
	rule   rule
	rng    *rand.Rand
	tap    func(flow, []byte) // called for every packet
	lost   int
	passed int
}

// port is one member's device, with one goroutine to read and one to write it.
type port struct {
	dev   *os.File
	queue chan packet
	done  chan struct{}
}

type packet struct {
	b   []byte
	due time.Time
}

func newWire(t *testing.T) *wire {
	w := &wire{ports: map[netip.Addr]*port{}, rule: healthy, rng: rand.New(rand.NewPCG(1, 2))}
	t.Cleanup(w.close)
	return w
}

// plug connects a device. It replaces an earlier one with the same address.
func (w *wire) plug(addr netip.Addr, dev *os.File) {
	w.unplug(addr)
	p := &port{dev: dev, queue: make(chan packet, 4096), done: make(chan struct{})}
	w.mu.Lock()
	w.ports[addr] = p
	w.mu.Unlock()
	w.wg.Go(func() { w.read(p) })
	w.wg.Go(p.write)
}

// unplug disconnects a device. It sends nothing more, not even the closing of its connections.
func (w *wire) unplug(addr netip.Addr) {
	w.mu.Lock()
	p := w.ports[addr]
	delete(w.ports, addr)
	w.mu.Unlock()
	if p != nil {
		close(p.done)
		_ = p.dev.Close()
	}
}

func (w *wire) close() {
	w.mu.Lock()
	var all []netip.Addr
	for a := range w.ports {
		all = append(all, a)
	}
	w.mu.Unlock()
	for _, a := range all {
		w.unplug(a)
	}
	w.wg.Wait()
}

// obey replaces the rule.
func (w *wire) obey(r rule) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rule = r
}

// record copies the packets that keep selects. stop ends it and returns them.
func (w *wire) record(keep func(flow) bool) (stop func() map[flow][][]byte) {
	got := map[flow][][]byte{}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tap = func(way flow, b []byte) {
		if keep(way) {
			got[way] = append(got[way], append([]byte(nil), b...))
		}
	}
	return func() map[flow][][]byte {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.tap = nil
		return got
	}
}

// counts returns the number of packets forwarded and dropped.
func (w *wire) counts() (passed, lost int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.passed, w.lost
}

func (w *wire) read(p *port) {
	b := make([]byte, 1<<16)
	for {
		n, err := p.dev.Read(b)
		if err != nil {
			return // closed, or its namespace ended
		}
		if f, ok := flowOf(b[:n]); ok {
			w.carry(f, append([]byte(nil), b[:n]...))
		}
	}
}

// flowOf reads the header of an IPv4 packet.
func flowOf(b []byte) (flow, bool) {
	if len(b) < 20 || b[0]>>4 != 4 || int(binary.BigEndian.Uint16(b[2:])) > len(b) {
		return flow{}, false
	}
	return flow{netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom4([4]byte(b[16:])), b[9] == 17}, true
}

func (w *wire) carry(way flow, b []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.tap != nil {
		w.tap(way, b)
	}
	f, p := w.rule(way), w.ports[way.to]
	if p == nil || f.loss > 0 && w.rng.Float64() < f.loss {
		w.lost++
		return
	}
	select {
	case p.queue <- packet{b, time.Now().Add(f.delay)}:
		w.passed++
	default: // queue full, as in any switch
		w.lost++
	}
}

// write passes packets to the device when they are due.
func (p *port) write() {
	for {
		var next packet
		select {
		case <-p.done:
			return
		case next = <-p.queue:
		}
		if wait := time.Until(next.due); wait > 0 {
			select {
			case <-p.done:
				return
			case <-time.After(wait):
			}
		}
		_, _ = p.dev.Write(next.b) // a closed device fails
	}
}
