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
)

// Wire of a message: version, key ID (4 bytes; zeros: not sealed), the sender
// (length, ID), its boot (8 bytes), the message's number in that process (8
// bytes), then the content. Numbers are little endian. Sealed content is
// AES-GCM with the number as nonce; the subject and everything before the
// content are authenticated too.
const (
	sealVersion = 1
	maxField    = 255
	fixedLen    = 1 + 4 + 1 + 8 + 8
)

var (
	errMessage = errors.New("natsbus: malformed message")
	errKey     = errors.New("natsbus: sealed with an unknown key")
	errClear   = errors.New("natsbus: not sealed")
	errSeal    = errors.New("natsbus: seal is broken")
	errReplay  = errors.New("natsbus: message was taken before")
	errEarly   = errors.New("natsbus: message was sealed before its sender showed that it lives")
)

// Whether a sender lives is asked of it, once: what it sealed may have been recorded.
// The proof is the answer to a nonce of the one who asks, sealed. What the sender said
// before that answer is refused from then on, and every number of a subject twice.

// message is an opened message.
type message struct {
	From    string
	Boot    uint64
	Number  uint64
	Content []byte
	// Unproven says that the sender has not shown yet that it lives: the message may be
	// a recorded one.
	Unproven bool
}

// sealer seals what this member sends and opens what others sent.
type sealer struct {
	id   string
	boot uint64

	mu     sync.Mutex
	number uint64
	keys   []groupKey
	own    cipher.AEAD         // nil without keys
	proofs proofs              // nonces for others
	others map[process]*sender // those that have shown that they live
}

// sender is a process that lives, or did when it was asked. NATS keeps the order of
// what one connection publishes on one subject, so numbers only grow there.
type sender struct {
	aeads map[[4]byte]cipher.AEAD // by key
	floor uint64                  // number of the message that was the proof
	last  map[string]uint64       // number of the last message, by subject
}

type groupKey struct {
	id  [4]byte
	key []byte
}

// maxOthers bounds the senders that are remembered; when there are more, all are asked
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

// derive makes the key of one sender's process, so that counting is enough to
// never use a nonce twice.
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
	defer s.mu.Unlock()
	s.number++
	b := make([]byte, 0, fixedLen+len(s.id)+len(content)+16)
	b = append(b, sealVersion)
	if s.own != nil {
		b = append(b, s.keys[0].id[:]...)
	} else {
		b = append(b, 0, 0, 0, 0)
	}
	b = append(b, byte(len(s.id)))
	b = append(b, s.id...)
	b = binary.LittleEndian.AppendUint64(b, s.boot)
	b = binary.LittleEndian.AppendUint64(b, s.number)
	if s.own == nil {
		return append(b, content...)
	}
	return s.own.Seal(b, nonce(s.number), content, additional(subject, b))
}

func nonce(number uint64) []byte {
	return binary.LittleEndian.AppendUint64(make([]byte, 4, 12), number)
}

func additional(subject string, head []byte) []byte {
	return append([]byte(subject), head...)
}

// open reads a message that came on subject. The content is a new slice when
// it was sealed, else part of b.
func (s *sealer) open(subject string, b []byte) (m message, err error) {
	if len(b) < fixedLen || b[0] != sealVersion {
		return m, errMessage
	}
	n := int(b[5])
	if n == 0 || len(b) < fixedLen+n {
		return m, errMessage
	}
	head := b[:fixedLen+n]
	m.From = string(b[6 : 6+n])
	m.Boot = binary.LittleEndian.Uint64(b[6+n:])
	m.Number = binary.LittleEndian.Uint64(b[14+n:])
	m.Content = b[len(head):]
	s.mu.Lock()
	defer s.mu.Unlock()
	keyID := [4]byte(b[1:5])
	if len(s.keys) == 0 {
		if keyID != [4]byte{} {
			return m, errKey
		}
		return m, nil
	}
	if keyID == [4]byte{} {
		return m, errClear
	}
	return m, s.unseal(&m, keyID, subject, additional(subject, head))
}

// unseal opens m's content. Calls hold s.mu.
func (s *sealer) unseal(m *message, keyID [4]byte, subject string, aad []byte) error {
	from := s.others[process{m.From, m.Boot}]
	var aead cipher.AEAD
	if from != nil {
		aead = from.aeads[keyID]
	}
	if aead == nil {
		i := slices.IndexFunc(s.keys, func(k groupKey) bool { return k.id == keyID })
		if i < 0 {
			return errKey
		}
		var err error
		if aead, err = derive(s.keys[i].key, m.From, m.Boot); err != nil {
			return err
		}
	}
	content, err := aead.Open(nil, nonce(m.Number), m.Content, aad)
	if err != nil {
		return errSeal
	}
	m.Content, m.Unproven = content, from == nil
	if from == nil {
		return nil
	}
	from.aeads[keyID] = aead
	switch last, heard := from.last[subject]; {
	case heard && m.Number <= last:
		return errReplay
	case m.Number <= from.floor:
		return errEarly
	}
	from.last[subject] = m.Number
	return nil
}
