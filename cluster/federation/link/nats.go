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

// Over NATS there are two kinds of subjects for each cluster, with the prefix of the
// configuration before them:
//
//	CLUSTER.any          questions that any replica may answer (queue group "replicas")
//	CLUSTER.at.PROCESS   questions to one replica, and answers to it
//
// A replica that has answered is asked again until it says nothing. Each message is
// sealed with the key of the pair, by the direction, the process that sent it and the
// subject; NATS credentials let a client reach the subjects, not the federation. A process
// has a subject of its own, so that nothing that was sent to another one, before it began,
// can be opened. Only the first questions of a process are to any replica: whoever asks
// so, may be a recording, and is doubted.

// anyReplica is the one target of a cluster that is asked through NATS.
const anyReplica = "any"

// maxPayload is what a server must take: MaxMessage and its seal.
const maxPayload = federation.MaxMessage + 512

// What of each kind may wait to be read, in messages and bytes; more is lost, and asked for again.
const (
	maxPending      = 8192
	maxPendingBytes = 8 << 20
)

// natsLink sends and receives through NATS.
type natsLink struct {
	l      *Link
	prefix string
	conn   *nats.Conn
	self   string // this process, as others name it
	boot   uint64
	pairs  map[string]*pair // by cluster; made at the start
	derive func(key []byte, from, to, replica string, boot uint64) (cipher.AEAD, error)

	mu     sync.Mutex // over number, and what pairs remember
	number uint64
}

// pair is what is arranged with one cluster. The lock of its link is over sticky and asked,
// and over senders.
type pair struct {
	key     []byte
	seal    cipher.AEAD
	senders [2]map[string]*sender // by process and boot: of the subject of this process, and of the one that all have
	sticky  string                // replica that has answered last
	asked   time.Time             // when it was asked last without an answer since; zero: it has answered
}

// sender is a process whose messages could be opened.
type sender struct {
	open cipher.AEAD
	// Numbers of its messages. Some come out of order, or twice, when a server of NATS dies.
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
			l.o.Log.Warn("connection of the federation to nats lost", "error", err)
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

// listen begins to receive. The link is to know of n by then.
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

// processName is the name of one life of a replica. Names have 63 bytes.
func processName(replica string, boot uint64) string {
	life := "_" + strconv.FormatUint(boot, 36)
	return replica[:min(len(replica), 63-len(life))] + life
}

func newSenders() [2]map[string]*sender { return [2]map[string]*sender{{}, {}} }

func (n *natsLink) close() { n.conn.Close() }

// send publishes a message. What cannot be sent is asked for again.
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
		if now.Sub(p.asked) > stickyPatience {
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

// stickyPatience is how long a replica that says nothing is asked before any other is.
const stickyPatience = 1500 * time.Millisecond

// A sealed message: version, kind of target (1: a question by any, which is answered by
// name), the sender's cluster and replica, its boot and the message's number, then what is
// sealed. Everything before it is authenticated too, and the subject.
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

// sealed seals a message. Calls hold n.mu.
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

// envelope is what is read of a sealed message before it is opened.
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

// receive opens a message and hands it on.
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
		n.l.refuse(federation.RefusedRate) // waiting would have other clusters wait
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

// opened opens a message, or says why not. Keys are derived and messages opened outside of
// the lock: whoever reaches the subjects can send any number of them that cannot be opened.
func (n *natsLink) opened(e *envelope, subject string) (frame []byte, reason string) {
	p := n.pairs[e.cluster]
	if p == nil {
		return nil, federation.RefusedStranger
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

// opener returns what a sender's messages are opened with, nil for one that is not known.
func (n *natsLink) opener(senders map[string]*sender, name string) cipher.AEAD {
	n.mu.Lock()
	defer n.mu.Unlock()
	if s := senders[name]; s != nil {
		return s.open
	}
	return nil
}

// toAny reports whether a subject is the one that all replicas have.
func toAny(subject string) bool { return strings.HasSuffix(subject, ".any") }

// remember keeps a sender whose message could be opened; the one that was heard longest
// ago is forgotten where there are too many.
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
