package trace

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/cespare/xxhash/v2"
)

// conversations reads conversations in ShareGPT's format: a JSON array of objects with conversations, a
// list of {from, value}. Each answer is a request, whose prompt is the text before it. The format
// has no times and no tokens, so these are modelled. Conversations begin at random times within an
// hour. The next question follows the answer after a pause of half a minute on average. A token is
// four bytes.
type conversations struct {
	reader
	rng *rand.Rand
}

type conversation struct {
	Conversations []struct {
		From  string `json:"from"`
		Value string `json:"value"`
	} `json:"conversations"`
}

const (
	bytesPerToken   = 4
	maxConversation = 16 << 20 // bytes of a conversation

	conversationSpan  = time.Hour // over which conversations begin
	conversationPause = 30        // mean seconds between an answer and the next question
)

func (t *conversations) read(r io.Reader) error {
	t.rng = rand.New(rand.NewPCG(0x7a1c, 0))
	bounded := &boundedReader{r: r, left: maxConversation}
	dec := json.NewDecoder(bounded)
	_, err := dec.Token() // the array's beginning
	for n := 1; err == nil && dec.More(); n++ {
		bounded.left = maxConversation
		var one conversation
		if err = dec.Decode(&one); err == nil {
			err = t.add(&one)
		}
		if err != nil {
			err = fmt.Errorf("conversation %d: %w", n, err)
		}
	}
	if err == nil {
		_, err = dec.Token() // its end
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrTrace, err)
	}
	return nil
}

// add adds the requests of a conversation.
func (t *conversations) add(one *conversation) error {
	var (
		text  = prompt{blockSize: bytesPerToken * t.blockSize}
		at    = time.Duration(t.rng.Int64N(int64(conversationSpan)))
		asked = false
	)
	session := t.begin()
	for _, turn := range one.Conversations {
		if turn.From != "gpt" && turn.From != "assistant" {
			text.add(turn.Value)
			asked = asked || turn.Value != ""
			continue
		}
		if asked {
			if len(t.requests) == mostRows {
				return fmt.Errorf("more than %d requests", mostRows)
			}
			answer := max((len(turn.Value)+bytesPerToken-1)/bytesPerToken, 1)
			r := Request{At: at % conversationSpan, Input: (text.size + bytesPerToken - 1) / bytesPerToken, Output: answer, Session: session}
			for _, key := range text.keys() {
				r.Blocks = append(r.Blocks, dense(t.blocks, key))
			}
			t.requests = append(t.requests, r)
			at += time.Duration((unhurried(float64(answer)) + conversationPause*t.rng.ExpFloat64()) * float64(time.Second))
		}
		text.add(turn.Value)
		asked = false
	}
	return nil
}

// prompt is the text of a conversation so far, as keys of its blocks.
type prompt struct {
	blockSize int // bytes
	size      int
	full      []uint64
	hash      xxhash.Digest
	begun     bool
}

func (p *prompt) add(text string) {
	if !p.begun {
		p.begun = true
		p.hash.Reset()
	}
	for len(text) > 0 {
		n := min(len(text), p.blockSize-p.size%p.blockSize)
		_, _ = p.hash.WriteString(text[:n])
		if p.size += n; p.size%p.blockSize == 0 {
			p.full = append(p.full, p.hash.Sum64())
		}
		text = text[n:]
	}
}

// keys returns the keys of the prompt's blocks. The last block may be partial.
func (p *prompt) keys() []uint64 {
	if p.size%p.blockSize == 0 {
		return p.full
	}
	return append(p.full[:len(p.full):len(p.full)], p.hash.Sum64())
}

// boundedReader fails when more is read than is left: no element of an array
// fills memory.
type boundedReader struct {
	r    io.Reader
	left int
}

var errTooLong = errors.New("too long")

func (b *boundedReader) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooLong
	}
	n, err := b.r.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}
