//go:build hostile

package hostile

import (
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/federation"
	"github.com/grapevine-epp/grapevine/cluster/federation/filter"
	"github.com/grapevine-epp/grapevine/cluster/federation/link"
	"github.com/grapevine-epp/grapevine/internal/lab/wan"
	"github.com/grapevine-epp/grapevine/internal/parts"
)

// Clusters of the federation: the first is the program under test, the second is the honest
// process, and attackers with a certificate are the third.
const (
	here   = "here"
	good   = "good"
	member = "hostile"
)

// clusters are attacks on the federation listener, and attacks by a cluster that the program
// queries.
var clusters = []attack{
	{"federation: strangers without a certificate, and with their own", (*rig).strangersAbroad, `reason="`},
	{"federation: a member that tells of 64 pools as fast as it can", (*rig).greedyTeller, `federation_paced_total{cluster="hostile"}`},
	{"federation: filters of millions of blocks that nobody asked for", (*rig).greedyFilters, `federation_paced_total{cluster="hostile"}`},
	{"federation: a member that asks as fast as it can", (*rig).greedyAsker, `federation_paced_total{cluster="hostile"}`},
	{"federation: a member that sends what is no message", (*rig).babbler, `reason="malformed"`}, // last, because the kernel still holds its data at the member's pace
}

const floodsFor = 5 * time.Second

// federate writes the files of all clusters and returns the program's configuration file.
func (r *rig) federate() string {
	r.abroad = filepath.Join(r.dir, "federation")
	if err := os.Mkdir(r.abroad, 0o700); err != nil {
		r.t.Fatal(err)
	}
	if err := wan.Authorize(r.abroad, here, good, member); err != nil {
		r.t.Fatal(err)
	}
	at := map[string]string{here: parts.FreeAddress(r.t), good: parts.FreeAddress(r.t), member: parts.FreeAddress(r.t)}
	r.federation, r.memberAt = at[here], at[member]
	for me, peers := range map[string][]string{here: {good, member}, good: {here}} {
		text := fmt.Sprintf("cluster: %s\nlisten: %s\ncertFile: %s.crt\nkeyFile: %s.key\ncaFile: %s\nsecretFile: %s\nexports:\n- pool: default/%s\npeers:\n", me, at[me], me, me, wan.CAFile, wan.SecretFile, vocabPool)
		for _, p := range peers {
			text += fmt.Sprintf("- name: %s\n  addresses: [%q]\n  export: [\"default/*\"]\n  accept: [\"*/*\"]\n", p, at[p])
		}
		if err := os.WriteFile(filepath.Join(r.abroad, me+".yaml"), []byte(text), 0o600); err != nil {
			r.t.Fatal(err)
		}
	}
	r.people.tell(order{Do: "federate", Path: filepath.Join(r.abroad, good+".yaml")}, &struct{}{})
	return filepath.Join(r.abroad, here+".yaml")
}

// vocabPool is the pool that the clusters export.
const vocabPool = "pool"

// neighbour is the honest cluster. It queries the program and records how long it got no answer.
type neighbour struct {
	link   *link.Link
	silent atomic.Int64 // checks without an answer
}

// lookEvery is the interval of the neighbour's checks.
const lookEvery = 20 * time.Millisecond

func openNeighbour(file string) (*neighbour, error) {
	c, err := link.ReadConfig(file)
	if err != nil {
		return nil, err
	}
	n := &neighbour{}
	if n.link, err = link.Open(link.Options{Config: c, Replica: good + "-0"}); err != nil {
		return nil, err
	}
	pool := federation.PoolKey{Namespace: "default", Name: vocabPool}
	n.link.SetExports([]federation.Export{{Pool: pool, Ready: []federation.Ready{{Model: "m", Count: 1}}}})
	go func() { // until the process ends
		for range time.Tick(lookEvery) {
			if c := n.link.View().Cluster(here); c.State != federation.Live || time.Now().After(c.Until) {
				n.silent.Add(1)
			}
		}
	}()
	return n, nil
}

// membership returns the TLS configuration of the hostile cluster, or of a stranger with a
// self-signed certificate.
func (r *rig) membership(stranger bool) *tls.Config {
	dir := r.abroad
	if stranger {
		dir = r.t.TempDir()
		if err := wan.Authorize(dir, member); err != nil {
			r.t.Error(err)
		}
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, member+".crt"), filepath.Join(dir, member+".key"))
	if err != nil {
		r.t.Error(err)
	}
	return &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}, NextProtos: []string{"grapevine-federation/1"}}
}

// strangersAbroad opens many connections to the federation listener: silent, without TLS, without a
// certificate, and with a self-signed certificate.
func (r *rig) strangersAbroad() string {
	end := time.Now().Add(floodsFor)
	forged := r.membership(true)
	bare := forged.Clone()
	bare.Certificates = nil
	together(400, func(i int) {
		attempts(end, 5*time.Millisecond, func() {
			c, err := net.DialTimeout("tcp", r.federation, time.Second)
			if err != nil {
				return
			}
			_ = c.SetDeadline(end)
			switch i % 4 {
			case 0:
				_, _ = io.Copy(io.Discard, c) // until it is closed
			case 1:
				_, _ = c.Write(bytes.Repeat([]byte("\x16\x03\x01\xff\xff"), 1000))
			case 2:
				_ = tls.Client(c, bare).Handshake()
			case 3:
				s := tls.Client(c, forged)
				_ = s.Handshake()
				_, _ = s.Read(make([]byte, 1))
			}
			c.Close()
		})
	})
	return ""
}

// attempts calls f until end, at most once per beat.
func attempts(end time.Time, beat time.Duration, f func()) {
	tick := time.NewTicker(beat)
	defer tick.Stop()
	for ; time.Now().Before(end); <-tick.C {
		f()
	}
}

func frame(b []byte) []byte {
	return append(binary.LittleEndian.AppendUint32(nil, uint32(len(b))), b...)
}

func text(b []byte, s string) []byte { return append(binary.AppendUvarint(b, uint64(len(s))), s...) }

// asMember sends the messages of say on 160 connections of the hostile cluster. Every other
// connection reads the answers.
func (r *rig) asMember(say func(i, n int) []byte) string {
	end := time.Now().Add(floodsFor)
	config := r.membership(false)
	together(160, func(i int) {
		attempts(end, 20*time.Millisecond, func() {
			c, err := tls.DialWithDialer(&net.Dialer{Timeout: time.Second}, "tcp", r.federation, config)
			if err != nil {
				return
			}
			_ = c.SetDeadline(end)
			if i%2 == 0 {
				go func() { _, _ = io.Copy(io.Discard, c) }()
			}
			for n := 0; err == nil && time.Now().Before(end); n++ {
				_, err = c.Write(say(i, n))
			}
			c.Close()
		})
	})
	return ""
}

// greedyAsker requests everything, including filter parts of 64 pools, in each message.
func (r *rig) greedyAsker() string {
	return r.asMember(func(i, n int) []byte {
		var all []byte
		for k := range 64 {
			b := []byte{1, 1, 1} // version, question, beat
			b = binary.LittleEndian.AppendUint64(b, uint64(i)<<20+1)
			b = binary.AppendUvarint(b, uint64(n*64+k+1)*1e6)
			b = binary.AppendUvarint(b, 64)
			for range 64 {
				b = append(text(text(b, "default"), vocabPool), 0, 0, 0, 0, 0, 0, 0, 0)
				b = binary.AppendUvarint(append(b, 0, 0), 1<<30)
			}
			all = append(all, frame(binary.LittleEndian.AppendUint64(b, 0))...)
		}
		return all
	})
}

func (r *rig) babbler() string {
	garbage := frame(append([]byte{1, 2}, bytes.Repeat([]byte{0xff}, federation.MaxMessage-2)...))
	empty := bytes.Repeat(frame(nil), 10_000)
	return r.asMember(func(i, _ int) []byte {
		switch i % 3 {
		case 0:
			return garbage
		case 1:
			return empty
		}
		return binary.LittleEndian.AppendUint32(nil, 1<<32-1)
	})
}

// answering listens as the hostile cluster and answers each question with the messages of say,
// without end.
func (r *rig) answering(say func(session, at, n uint64) []byte) string {
	lis, err := tls.Listen("tcp", r.memberAt, r.membership(false))
	if err != nil {
		return err.Error()
	}
	defer lis.Close()
	end := time.Now().Add(2 * floodsFor)
	asked := atomic.Int64{}
	go func() {
		for {
			c, err := lis.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_ = c.SetDeadline(end)
				var session, at atomic.Uint64 // of the last question
				next := func() error {
					b, err := readFrame(c)
					if err != nil || len(b) < 12 {
						return io.EOF
					}
					session.Store(binary.LittleEndian.Uint64(b[3:]))
					v, _ := binary.Uvarint(b[11:])
					at.Store(v)
					return nil
				}
				err := next()
				if err == nil {
					asked.Add(1)
				}
				go func() {
					for next() == nil {
					}
				}()
				for n := uint64(1); err == nil; n++ {
					_, err = c.Write(say(session.Load(), at.Load(), n))
				}
			}()
		}
	}()
	n := 0.0
	attempts(end.Add(-time.Second), 500*time.Millisecond, func() {
		n = r.cage.counters()[`grapevine_federation_pools{cluster="hostile",state="live"}`]
	})
	if n != 64 { // last check, still during the flood
		return fmt.Sprintf("%g pools are believed, %d times it was asked", n, asked.Load())
	}
	return ""
}

func readFrame(r io.Reader) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	b := make([]byte, min(binary.LittleEndian.Uint32(head[:]), federation.MaxMessage))
	_, err := io.ReadFull(r, b)
	return b, err
}

// telling returns a report of 64 pools with filters of the given number of buckets and as many
// groups of models and addresses as fit.
func (r *rig) telling(session, at, n uint64, epoch uint64, buckets uint32, groups int) []byte {
	b := []byte{1, 2, 0} // version, report, not leaving
	b = binary.LittleEndian.AppendUint64(b, session)
	b = binary.LittleEndian.AppendUint64(b, 77)
	id := r.secret().ID()
	b = append(b, id[:]...)
	for _, v := range []uint64{at, 0, uint64(5 * time.Second), n} {
		b = binary.AppendUvarint(b, v)
	}
	b = binary.AppendUvarint(text(b, "hostile-0"), 64)
	for k := range 64 {
		one := append(text(text(nil, "default"), fmt.Sprint("pool", k)), 0, 0, 0, 0, 0, 0) // flags, pickers, gateways, addresses, region, zone
		one = binary.AppendUvarint(one, uint64(groups))
		for g := range groups {
			one = append(text(one, fmt.Sprint("m", g)), 0, 1)
		}
		one = append(one, make([]byte, 5+2+9*8+1)...) // load and capacity, waits, amounts, class
		one = filter.Head{Epoch: epoch, Buckets: buckets, Version: 1, Blocks: buckets * 32}.Append(one)
		b = append(binary.AppendUvarint(b, uint64(len(one))), one...)
	}
	return frame(binary.LittleEndian.AppendUint64(append(b, 0), 0))
}

// secret returns the federation's secret.
func (r *rig) secret() *filter.Secret {
	b, err := os.ReadFile(filepath.Join(r.abroad, wan.SecretFile))
	if err != nil {
		r.t.Error(err)
	}
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(b)))
	if err != nil {
		r.t.Error(err)
	}
	s, err := filter.NewSecret(raw)
	if err != nil {
		r.t.Error(err)
	}
	return s
}

func (r *rig) greedyTeller() string {
	return r.answering(func(session, at, n uint64) []byte { return r.telling(session, at, n, 1, 64, 250) })
}

// greedyFilters reports small filters and sends parts of others with 32 MiB each, compressed to a
// few bytes.
func (r *rig) greedyFilters() string {
	const buckets = 32 << 20 / 64
	return r.answering(func(session, at, n uint64) []byte {
		all := r.telling(session, at, n, n, 64, 1)
		for k := range 64 {
			b := []byte{1, 3}
			b = binary.LittleEndian.AppendUint64(b, session)
			b = text(text(b, "default"), fmt.Sprint("pool", k))
			b = filter.Head{Epoch: n, Buckets: buckets, Version: 1}.Append(b)
			b = binary.LittleEndian.AppendUint32(append(b, 0, 0), buckets*4)
			all = append(all, frame(binary.LittleEndian.AppendUint64(b, 0))...)
		}
		return all
	})
}
