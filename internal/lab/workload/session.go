package workload

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/answer"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
)

// Turn is one request of a session.
type Turn struct {
	Session string // session key
	Number  int    // from 0
	Path    string
	Body    []byte
	Stream  bool
	Answer  int         // expected tokens of the answer
	Seed    answer.Seed // of the answer
	Think   time.Duration

	messages []vocab.Message // chats
	text     string          // completions
}

// Prompt appends the text that the engine tokenizes, rendered with the built-in chat template.
func (t *Turn) Prompt(dst []byte) []byte {
	if t.messages == nil {
		return append(dst, t.text...)
	}
	dst, err := vocab.AppendChat(dst, &vocab.Chat{Messages: t.messages})
	if err != nil {
		return dst // a turn always has messages
	}
	return dst
}

// Source generates the sessions of a workload.
type Source struct {
	kind  Kind
	seed  uint64
	model string
	words []string
	whole float64 // share of requests without streaming
}

// NewSource returns the sessions of kind for a seed. whole is the share of requests, from 0 to 1,
// that do not stream.
func NewSource(kind Kind, seed uint64, model string, wholeShare float64) *Source {
	return &Source{kind: kind, seed: seed, model: model, words: vocab.New().Words(), whole: wholeShare}
}

// Session returns session number i.
func (s *Source) Session(i int) *Session {
	rng := rand.New(rand.NewPCG(s.seed, uint64(i)+1))
	turns := 1
	for s.kind.Turns > 1 && rng.Float64() > 1/float64(s.kind.Turns) && turns < 20*s.kind.Turns {
		turns++
	}
	return &Session{src: s, rng: rng, key: fmt.Sprintf("%s-%d-%d", s.kind.Name, s.seed, i), left: turns}
}

// Session is one conversation.
type Session struct {
	src      *Source
	rng      *rand.Rand
	key      string
	left     int
	number   int
	messages []vocab.Message
	text     string
}

// Next returns the next turn for the previous answer. ok is false when the session is over.
func (s *Session) Next(said string) (*Turn, bool) {
	if s.left == 0 {
		return nil, false
	}
	s.left--
	k := &s.src.kind
	question := s.src.prose(s.rng, k.user(s.rng))
	if s.number == 0 {
		question = s.open(question)
	}
	t := &Turn{
		Session: s.key, Number: s.number, Answer: max(1, draw(s.rng, k.Answer, .5)),
		Stream: s.rng.Float64() >= s.src.whole, Think: time.Duration(s.rng.ExpFloat64() * float64(k.Think)),
	}
	s.number++
	if k.Completions {
		s.text += said + question
		t.Path, t.text, t.Seed = "/v1/completions", s.text, answer.OfText(s.text)
	} else {
		if said != "" {
			s.messages = append(s.messages, vocab.Message{Role: "assistant", Content: vocab.Content(said)})
		}
		s.messages = append(s.messages, vocab.Message{Role: "user", Content: vocab.Content(question)})
		t.Path, t.messages, t.Seed = "/v1/chat/completions", s.messages[:len(s.messages):len(s.messages)], answer.OfChat(s.messages)
	}
	t.Body = t.encode(s.src.model)
	return t, true
}

// open starts the session with a shared text and returns the first question.
func (s *Session) open(question string) string {
	k := &s.src.kind
	if k.Shared == 0 {
		return question
	}
	which := pick(s.rng, k.Shared, k.Zipf)
	rng := rand.New(rand.NewPCG(s.src.seed^0x5eed, uint64(which)))
	shared := s.src.prose(rng, draw(rng, k.SharedTokens, .4))
	if k.InUser || k.Completions {
		return shared + "\n\n" + question
	}
	s.messages = append(s.messages, vocab.Message{Role: "system", Content: vocab.Content(shared)})
	return question
}

// prose returns words in sentences, about one token per word.
func (s *Source) prose(rng *rand.Rand, tokens int) string {
	buf := make([]byte, 0, 6*tokens)
	for i := range tokens {
		if i > 0 {
			buf = append(buf, ' ')
		}
		buf = append(buf, s.words[rng.IntN(len(s.words))]...)
		if rng.IntN(14) == 0 {
			buf = append(buf, '.')
		}
	}
	return string(buf)
}

func (t *Turn) encode(model string) []byte {
	type streamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	}
	body := struct {
		Model     string          `json:"model"`
		Messages  []vocab.Message `json:"messages,omitempty"`
		Prompt    *string         `json:"prompt,omitempty"`
		MaxTokens int             `json:"max_tokens"`
		IgnoreEOS bool            `json:"ignore_eos"`
		Stream    bool            `json:"stream"`
		Options   *streamOptions  `json:"stream_options,omitempty"`
	}{Model: model, Messages: t.messages, MaxTokens: t.Answer, IgnoreEOS: true, Stream: t.Stream}
	if t.messages == nil {
		body.Prompt = &t.text
	}
	if t.Stream {
		body.Options = &streamOptions{true}
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return nil // strings, numbers and booleans always encode
	}
	return raw
}
