package link

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/grapevine-epp/grapevine/cluster/federation"
	"github.com/grapevine-epp/grapevine/cluster/internal/window"
)

// Each cluster has two kinds of NATS subjects, below the configured prefix:
//
//   CLUSTER.any         asks that any replica may answer (queue group "replicas")
//   CLUSTER.at.PROCESS  asks to one replica, and answers to it
//
// A replica that has answered receives all further asks until it falls silent. Each message is
// sealed with the pair's key, bound to the direction, the sending process and the subject. NATS
// credentials give access to the subjects, but not to the federation.
//
// Each process has its own subject, so a message sent to an earlier process cannot be opened. Only
// a process's first asks go to any replica. Such an ask may be a replay, so its session is doubted.

// anyReplica is the only target of a cluster over NATS.
const anyReplica = "any"

// maxPayload is the message size that a server must accept: MaxMessage plus the seal.
const maxPayload = federation.MaxMessage + 512

// Limits of unread messages per subscription. Messages above them are lost and requested again.
const (
	maxPending      = 8192
	maxPendingBytes = 8 << 20
)

// natsLink sends and receives through NATS.
type natsLink struct {
	l      *Link
	prefix string
	conn   *nats.Conn
	self   string // this process's name
	boot   uint64
	pairs  map[string]*pair // by cluster; immutable
	derive func(key []byte, from, to, replica string, boot uint64) (cipher.AEAD, error)

	mu     sync.Mutex // guards number and the pairs' state
	number uint64
}

// pair is the state for one cluster. The link's lock guards sticky, asked and senders.
type pair struct {
	key     []byte
	seal    cipher.AEAD
	senders [2]map[string]*sender // by process and boot: for this process's subject, and for the common one
	sticky  string                // replica that answered last
	asked   time.Time             // time of the last unanswered ask to it; zero: it has answered
}

// sender is a process whose messages could be opened.
type sender struct {
	open cipher.AEAD
	// Numbers of its messages. Some arrive out of order or twice when a NATS server fails.
	taken window.Window
	seen  time.Time
}

const maxSenders = 256

func openNATS(l *Link, keys map[string][]byte) (*natsLink, error) {
	c := l.o.Config.NATS
	n := &natsLink{l: l, prefix: c.Prefix, boot: boot(), pairs: map[string]*pair{}, derive: sealer}
	n.self = processName(l.o.Replica, n.boot)
	if n.prefix == "" {
		n.prefix = "grapevine.federation"
	}
	for cluster, key := range keys {
		seal, err := sealer(key, l.o.Config.Cluster, cluster, n.self, n.boot)
		if err != nil {
			return nil, err
		}
		n.pairs[cluster] = &pair{key: key, seal: seal, senders: newSenders()}
	}
	opts := []nats.Option{
		nats.Name("grapevine federation " + l.o.Config.Cluster), nats.NoEcho(), nats.MaxReconnects(-1), nats.IgnoreAuthErrorAbort(),
		nats.ReconnectWait(200 * time.Millisecond), nats.ReconnectBufSize(-1), nats.RetryOnFailedConnect(true), nats.Timeout(dialTimeout),
		nats.PingInterval(time.Second), nats.MaxPingsOutstanding(2),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			l.o.Log.Warn("federation connection to nats lost", "error", err)
		}),
	}
	if c.CAFile != "" {
		opts = append(opts, nats.RootCAs(c.CAFile))
	}
	if c.CertFile != "" {
		opts = append(opts, nats.ClientCert(c.CertFile, c.KeyFile))
	}
	if c.Credentials != "" {
		opts = append(opts, nats.UserCredentials(c.Credentials))
	}
	if c.NKey != "" {
		o, err := nats.NkeyOptionFromSeed(c.NKey)
		if err != nil {
			return nil, fmt.Errorf("federation: nats: %w", err)
		}
		opts = append(opts, o)
	}
	var err error
	if n.conn, err = nats.Connect(strings.Join(c.URLs, ","), opts...); err != nil {
		return nil, fmt.Errorf("federation: nats: %w", err)
	}
	return n, nil
}

// listen subscribes. The link must already have n.
func (n *natsLink) listen() error {
	self := n.prefix + "." + n.l.o.Config.Cluster
	asked, err := n.conn.QueueSubscribe(self+".any", "replicas", n.receive)
	if err != nil {
		return fmt.Errorf("federation: nats: %w", err)
	}
	told, err := n.conn.Subscribe(self+".at."+n.self, n.receive)
	if err != nil {
		return fmt.Errorf("federation: nats: %w", err)
	}
	for _, s := range []*nats.Subscription{asked, told} {
		if err := s.SetPendingLimits(maxPending, maxPendingBytes); err != nil {
			return fmt.Errorf("federation: nats: %w", err)
		}
	}
	return nil
}

// processName is the unique name of a replica's process. Names have at most 63 bytes.
func processName(replica string, boot uint64) string {
	life := "_" + strconv.FormatUint(boot, 36)
	return replica[:min(len(replica), 63-len(life))] + life
}

func newSenders() [2]map[string]*sender { return [2]map[string]*sender{{}, {}} }

func (n *natsLink) close() { n.conn.Close() }

// send publishes a message. Failed messages are requested again by the receiver.
func (n *natsLink) send(m federation.Send) {
	n.mu.Lock()
	p := n.pairs[m.Cluster]
	if p == nil {
		n.mu.Unlock()
		return
	}
	to := n.prefix + "." + m.Cluster + ".any"
	switch {
	case m.To != anyReplica:
		to = n.prefix + "." + m.Cluster + ".at." + m.To
	case p.sticky != "":
		now := time.Now()
		if p.asked.IsZero() {
			p.asked = now
		}
		if now.Sub(p.asked) > stickyTimeout {
			p.sticky, p.asked = "", time.Time{}
		} else {
			to = n.prefix + "." + m.Cluster + ".at." + p.sticky
		}
	}
	b := n.sealed(p, m, to)
	n.mu.Unlock()
	if n.conn.Publish(to, b) != nil {
		n.l.dropped++
	}
}

// stickyTimeout is how long a silent replica is asked before any other.
const stickyTimeout = 1500 * time.Millisecond

// A sealed message has these parts: version, kind of target (1: an ask to any replica, answered by
// name), the sender's cluster and replica, its boot, the message's number, then the sealed content.
// All preceding bytes and the subject are authenticated too.
const sealVersion = 1

func sealer(key []byte, from, to, replica string, boot uint64) (cipher.AEAD, error) {
	info := fmt.Sprintf("grapevine federation nats %s>%s %s %d", from, to, replica, boot)
	sub, err := hkdf.Key(sha256.New, key, nil, info, 32)
	if err != nil {
		return nil, fmt.Errorf("federation: %w", err)
	}
	block, err := aes.NewCipher(sub)
	if err != nil {
		return nil, fmt.Errorf("federation: %w", err)
	}
	return cipher.NewGCM(block)
}

func nonceOf(number uint64) []byte {
	return binary.LittleEndian.AppendUint64(make([]byte, 4, 12), number)
}

// sealed seals a message. The caller holds n.mu.
func (n *natsLink) sealed(p *pair, m federation.Send, subject string) []byte {
	n.number++
	answer := byte(0)
	if m.To != anyReplica {
		answer = 1
	}
	b := []byte{sealVersion, answer}
	for _, s := range [...]string{n.l.o.Config.Cluster, n.self} {
		b = append(append(b, byte(len(s))), s...)
	}
	b = binary.LittleEndian.AppendUint64(b, n.boot)
	b = binary.LittleEndian.AppendUint64(b, n.number)
	return p.seal.Seal(b, nonceOf(n.number), m.Frame, append([]byte(subject), b...))
}

// envelope is the part of a sealed message that is readable without opening it.
type envelope struct {
	answer           bool
	cluster, replica string
	boot, number     uint64
	head, content    []byte
}

var errSealed = errors.New("federation: malformed message")

func parseEnvelope(b []byte) (e envelope, err error) {
	whole := b
	if len(b) < 2 || b[0] != sealVersion || b[1] > 1 || len(b) > maxPayload {
		return e, errSealed
	}
	e.answer = b[1] == 1
	b = b[2:]
	for _, s := range [...]*string{&e.cluster, &e.replica} {
		if len(b) == 0 || len(b) < 1+int(b[0]) {
			return e, errSealed
		}
		*s = string(b[1 : 1+int(b[0])])
		b = b[1+int(b[0]):]
		if !validName(*s) {
			return e, errSealed
		}
	}
	if len(b) < 16 {
		return e, errSealed
	}
	e.boot, e.number = binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
	e.head, e.content = whole[:len(whole)-len(b)+16], b[16:]
	return e, nil
}

// receive opens a message and delivers it.
func (n *natsLink) receive(m *nats.Msg) {
	e, err := parseEnvelope(m.Data)
	if err != nil {
		n.l.refuse(federation.RefusedMalformed)
		return
	}
	frame, reason := n.opened(&e, m.Subject)
	if reason != "" {
		n.l.refuse(reason)
		return
	}
	if !n.l.paces[e.cluster].allow(len(frame), time.Now()) {
		n.l.refuse(federation.RefusedRate) // waiting would delay other clusters
		return
	}
	link, doubt := e.replica, toAny(m.Subject)
	if e.answer {
		link = anyReplica
	}
	n.l.do(func(now time.Time) []federation.Send {
		out := n.l.core.Receive(e.cluster, link, frame, now, nil)
		if doubt {
			n.l.core.MarkUnproven(e.cluster, link)
		} else {
			n.l.core.MarkProven(e.cluster, link)
		}
		return out
	})
}

// opened opens a message or returns the reason for rejecting it. Keys are derived and messages
// opened outside of the lock, because any client that reaches the subjects can send any number of
// messages that cannot be opened.
func (n *natsLink) opened(e *envelope, subject string) (frame []byte, reason string) {
	p := n.pairs[e.cluster]
	if p == nil {
		return nil, federation.RefusedUnknown
	}
	name, senders := fmt.Sprintf("%s %x", e.replica, e.boot), p.senders[0]
	if toAny(subject) {
		senders = p.senders[1]
	}
	open := n.opener(senders, name)
	if open == nil {
		var err error
		if open, err = n.derive(p.key, e.cluster, n.l.o.Config.Cluster, e.replica, e.boot); err != nil {
			return nil, "key"
		}
	}
	frame, err := open.Open(nil, nonceOf(e.number), e.content, append([]byte(subject), e.head...))
	if err != nil {
		return nil, "key"
	}
	if e.answer && toAny(subject) {
		return nil, "replay"
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	s := senders[name]
	if s == nil {
		s = &sender{open: open}
	}
	switch s.taken.Take(e.number) {
	case window.Repeated:
		return nil, "repeated"
	case window.Old:
		return nil, "replay"
	}
	remember(senders, name, s, time.Now())
	if e.answer {
		if p.sticky, p.asked = e.replica, (time.Time{}); federation.IsRefusal(frame) {
			p.sticky = ""
		}
	}
	return frame, ""
}

// opener returns the cipher for a known sender's messages, or nil.
func (n *natsLink) opener(senders map[string]*sender, name string) cipher.AEAD {
	n.mu.Lock()
	defer n.mu.Unlock()
	if s := senders[name]; s != nil {
		return s.open
	}
	return nil
}

// toAny reports whether a subject is the common one of all replicas.
func toAny(subject string) bool { return strings.HasSuffix(subject, ".any") }

// remember stores a sender whose message could be opened. It evicts the least recently heard one if
// there are too many.
func remember(senders map[string]*sender, name string, s *sender, now time.Time) {
	s.seen = now
	if senders[name] == nil && len(senders) >= maxSenders {
		oldest := ""
		for k, o := range senders {
			if oldest == "" || o.seen.Before(senders[oldest].seen) {
				oldest = k
			}
		}
		delete(senders, oldest)
	}
	senders[name] = s
}
