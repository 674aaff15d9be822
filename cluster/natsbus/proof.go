package natsbus

import (
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"

	"github.com/nats-io/nats.go"

	"github.com/grapevine-epp/grapevine/cluster/internal/window"
)

const nonceLen = 16

type challenge [nonceLen]byte

// proofs generates the nonces that other processes must seal. A nonce is derived from the process,
// so none is stored.
type proofs [32]byte

func newProofs() (p proofs) {
	_, _ = rand.Read(p[:]) // never fails
	return p
}

func (p *proofs) of(who process) (c challenge) {
	m := hmac.New(sha256.New, p[:])
	_, _ = m.Write(binary.LittleEndian.AppendUint64(nil, who.boot))
	_, _ = m.Write([]byte(who.id))
	copy(c[:], m.Sum(nil))
	return c
}

// ask returns the nonce that a process must answer. ok is false if it has already answered.
func (s *sealer) ask(who process) (c challenge, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.others[who] != nil || len(s.keys) == 0 {
		return c, false
	}
	return s.proofs.of(who), true
}

// prove checks whether answer is the nonce for m's sender, which proves that the sender is alive.
// It reports whether that is new.
func (s *sealer) prove(m message, answer challenge) bool {
	who := process{m.From, m.Boot}
	s.mu.Lock()
	defer s.mu.Unlock()
	if want := s.proofs.of(who); s.others[who] != nil || !hmac.Equal(answer[:], want[:]) {
		return false
	}
	if len(s.others) >= maxOthers {
		clear(s.others) // and recorded answers become invalid
		s.proofs = newProofs()
	}
	s.others[who] = &sender{aeads: map[[4]byte]cipher.AEAD{}, floor: m.Number, taken: map[string]*window.Window{}}
	return true
}

// proof is exchanged by two members before they accept each other's heartbeats. It has a nonce to
// answer, an answer, or both. Zero means none.
type proof struct {
	Ask, Answer challenge
	Beat        heartbeat // of the sender
}

func (p *proof) append(b []byte) []byte {
	b = append(b, p.Ask[:]...)
	b = append(b, p.Answer[:]...)
	return p.Beat.append(b)
}

func parseProof(b []byte) (p proof, err error) {
	if len(b) < 2*nonceLen {
		return p, errHeartbeat
	}
	copy(p.Ask[:], b)
	copy(p.Answer[:], b[nonceLen:])
	p.Beat, err = parseHeartbeat(b[2*nonceLen:])
	return p, err
}

// challenge sends a process a proof request if one is needed, and answer to its own request.
func (b *Bus) challenge(who process, answer challenge) {
	p := proof{Answer: answer}
	var asks bool
	if p.Ask, asks = b.sealer.ask(who); !asks {
		p.Ask = challenge{}
	}
	if !asks && answer == (challenge{}) {
		return
	}
	b.mu.Lock()
	p.Beat = b.heartbeat()
	leaving := b.leaving
	b.mu.Unlock()
	if !leaving {
		b.publishOne(b.proofSubject(who.id), p.append(nil))
	}
}

// onProof handles another member's proof request or answer.
func (b *Bus) onProof(msg *nats.Msg) {
	m, ok := b.opened(msg, maxUnproven)
	if !ok {
		return
	}
	p, err := parseProof(m.Content)
	if err != nil {
		b.count("frame")
		return
	}
	who := process{m.From, m.Boot}
	proved := p.Answer != challenge{} && b.sealer.prove(m, p.Answer)
	if p.Ask != (challenge{}) {
		b.challenge(who, p.Ask)
	}
	if proved {
		b.mu.Lock()
		delete(b.waiting, who)
		b.mu.Unlock()
		b.hear(m, p.Beat)
	}
}
