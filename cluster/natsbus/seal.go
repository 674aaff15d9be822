package natsbus

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/grapevine-epp/grapevine/cluster/internal/window"
)

// Message format: version, key ID (4 bytes; zeros: not sealed), sender (length, ID), its boot (8
// bytes), the message's number in that process (8 bytes), then the content. Numbers are little
// endian. Sealed content is AES-GCM with the number as nonce. The subject and all bytes before the
// content are authenticated too.
const (
	sealVersion = 1
	maxField    = 255
	fixedLen    = 1 + 4 + 1 + 8 + 8
)

var (
	errMessage  = errors.New("natsbus: malformed message")
	errKey      = errors.New("natsbus: sealed with an unknown key")
	errClear    = errors.New("natsbus: not sealed")
	errSeal     = errors.New("natsbus: seal is broken")
	errAgain    = errors.New("natsbus: duplicate message")
	errReplay   = errors.New("natsbus: message is too old to check for duplicates")
	errUnproven = errors.New("natsbus: sender has not proved its liveness")
	errEarly    = errors.New("natsbus: message was sealed before its sender proved its liveness")
)

// A receiver requires every sender to prove once that it is alive, because its sealed messages may
// be recordings. The proof is a sealed answer to the receiver's nonce. From then on the receiver
// rejects earlier messages of the sender, and duplicate numbers on a subject.

// message is an opened message.
type message struct {
	From    string
	Boot    uint64
	Number  uint64
	Content []byte
	// Unproven means that the sender is not proven alive yet. The message may be a recording.
	Unproven bool
}

// sealer seals this member's messages and opens messages of other members.
type sealer struct {
	id   string
	boot uint64

	mu     sync.Mutex
	number uint64
	keys   []groupKey
	own    cipher.AEAD         // nil without keys
	proofs proofs              // nonces for other processes
	others map[process]*sender // processes proven alive
}

// sender is a process that has proven that it is alive. Its messages on a subject arrive in order
// on an unchanged route. When a route between NATS servers breaks, its delayed messages may arrive
// after later ones, and a message may arrive twice (TestRouteDies).
type sender struct {
	aeads map[[4]byte]cipher.AEAD   // by key
	floor uint64                    // number of the message with the proof
	taken map[string]*window.Window // numbers received, by subject
}

type groupKey struct {
	id  [4]byte
	key []byte
}

// maxOthers is the largest number of stored senders. Above it, all senders must prove themselves
// again.
const maxOthers = 1024

func newSealer(id string, boot uint64, keys [][]byte) (*sealer, error) {
	s := &sealer{id: id, boot: boot, proofs: newProofs(), others: map[process]*sender{}}
	return s, s.setKeys(keys)
}

// setKeys replaces the keys.
func (s *sealer) setKeys(keys [][]byte) error {
	var list []groupKey
	for _, k := range keys {
		sum := sha256.Sum256(append([]byte("grapevine key id"), k...))
		list = append(list, groupKey{id: [4]byte(sum[:4]), key: k})
	}
	var own cipher.AEAD
	if len(list) > 0 {
		var err error
		if own, err = derive(list[0].key, s.id, s.boot); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys, s.own = list, own
	for _, from := range s.others {
		maps.DeleteFunc(from.aeads, func(id [4]byte, _ cipher.AEAD) bool {
			return !slices.ContainsFunc(list, func(k groupKey) bool { return k.id == id })
		})
	}
	return nil
}

// derive makes the key of one sender process. With its own key per process, a counter never repeats
// a nonce.
func derive(key []byte, id string, boot uint64) (cipher.AEAD, error) {
	info := binary.LittleEndian.AppendUint64([]byte("grapevine nats "+id), boot)
	sub, err := hkdf.Key(sha256.New, key, nil, string(info), 32)
	if err != nil {
		return nil, fmt.Errorf("natsbus: %w", err)
	}
	block, err := aes.NewCipher(sub)
	if err != nil {
		return nil, fmt.Errorf("natsbus: %w", err)
	}
	return cipher.NewGCM(block)
}

func (s *sealer) seal(subject string, content []byte) []byte {
	s.mu.Lock()
	s.number++
	number, own, keyID := s.number, s.own, [4]byte{}
	if own != nil {
		keyID = s.keys[0].id
	}
	s.mu.Unlock()
	b := make([]byte, 0, fixedLen+len(s.id)+len(content)+16)
	b = append(b, sealVersion)
	b = append(b, keyID[:]...)
	b = append(b, byte(len(s.id)))
	b = append(b, s.id...)
	b = binary.LittleEndian.AppendUint64(b, s.boot)
	b = binary.LittleEndian.AppendUint64(b, number)
	if own == nil {
		return append(b, content...)
	}
	return own.Seal(b, nonce(number), content, additional(subject, b))
}

func nonce(number uint64) []byte {
	return binary.LittleEndian.AppendUint64(make([]byte, 4, 12), number)
}

func additional(subject string, head []byte) []byte {
	return append([]byte(subject), head...)
}

// open decodes a message received on subject. The content is a new slice if it was sealed, and
// otherwise a part of b. If the sender is not proven alive, a message with more than unheard bytes
// of content is rejected unopened.
//
// Any client that may publish can send any number of messages that cannot be opened. So messages
// are rejected without opening them where possible, and opened outside of the lock.
func (s *sealer) open(subject string, b []byte, unheard int) (m message, err error) {
	if len(b) < fixedLen || b[0] != sealVersion {
		return m, errMessage
	}
	n := int(b[5])
	if n == 0 || len(b) < fixedLen+n {
		return m, errMessage
	}
	head, keyID := b[:fixedLen+n], [4]byte(b[1:5])
	m.From = string(b[6 : 6+n])
	m.Boot = binary.LittleEndian.Uint64(b[6+n:])
	m.Number = binary.LittleEndian.Uint64(b[14+n:])
	m.Content = b[len(head):]
	aead, key, err := s.opener(&m, keyID, subject, unheard)
	if err != nil || aead == nil && key == nil {
		return m, err
	}
	if aead == nil {
		if aead, err = derive(key, m.From, m.Boot); err != nil {
			return m, err
		}
	}
	content, err := aead.Open(nil, nonce(m.Number), m.Content, additional(subject, head))
	if err != nil {
		return m, errSeal
	}
	m.Content = content
	return m, s.opened(&m, keyID, aead, subject)
}

// opener returns the cipher for m, or the key to derive it from. It returns neither if messages are
// not sealed.
func (s *sealer) opener(m *message, keyID [4]byte, subject string, unheard int) (cipher.AEAD, []byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case len(s.keys) == 0 && keyID != [4]byte{}:
		return nil, nil, errKey
	case len(s.keys) == 0:
		return nil, nil, nil
	case keyID == [4]byte{}:
		return nil, nil, errClear
	}
	i := slices.IndexFunc(s.keys, func(k groupKey) bool { return k.id == keyID })
	if i < 0 {
		return nil, nil, errKey
	}
	from := s.others[process{m.From, m.Boot}]
	if from == nil {
		if len(m.Content) > unheard {
			return nil, nil, errUnproven
		}
		return nil, s.keys[i].key, nil
	}
	return from.aeads[keyID], s.keys[i].key, from.new(m.Number, subject)
}

// opened accepts a message that aead opened, unless a duplicate was accepted in the meantime.
func (s *sealer) opened(m *message, keyID [4]byte, aead cipher.AEAD, subject string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := s.others[process{m.From, m.Boot}]
	if m.Unproven = from == nil; m.Unproven {
		return nil
	}
	if err := from.new(m.Number, subject); err != nil {
		return err
	}
	if slices.ContainsFunc(s.keys, func(k groupKey) bool { return k.id == keyID }) {
		from.aeads[keyID] = aead
	}
	w := from.taken[subject]
	if w == nil {
		w = &window.Window{}
		from.taken[subject] = w
	}
	w.Take(m.Number)
	return nil
}

// new returns an error if a message with that number must be rejected.
func (f *sender) new(number uint64, subject string) error {
	if w := f.taken[subject]; w != nil {
		switch w.Classify(number) {
		case window.Repeated:
			return errAgain
		case window.Old:
			return errReplay
		}
	}
	if number <= f.floor {
		return errEarly
	}
	return nil
}
