package workload

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/valyala/fastjson"

	"github.com/grapevine-epp/grapevine/internal/lab/sim"
)

var parsers fastjson.ParserPool

// readWhole reads an answer without streaming.
func readWhole(body io.Reader, sum string, o *Outcome) error {
	raw, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	if got := fmt.Sprintf("%016x", xxhash.Sum64(raw)); got != sum {
		return fmt.Errorf("%w: checksum %s, the engine's %s", ErrWrong, got, sum)
	}
	_, err = o.add(raw)
	return err
}

// add parses a body or chunk. text reports whether it contained text.
func (o *Outcome) add(raw []byte) (text bool, err error) {
	p := parsers.Get()
	defer parsers.Put(p)
	v, err := p.ParseBytes(raw)
	if err != nil {
		return false, fmt.Errorf("%w: %w", ErrWrong, err)
	}
	for _, c := range v.GetArray("choices") {
		for _, at := range [][]string{{"text"}, {"delta", "content"}, {"message", "content"}} {
			if s := c.GetStringBytes(at...); len(s) > 0 {
				o.Text += string(s)
				text = true
			}
		}
	}
	if u := v.Get("usage"); u != nil && u.Type() == fastjson.TypeObject {
		o.PromptTokens, o.OutputTokens = u.GetInt("prompt_tokens"), u.GetInt("completion_tokens")
		o.CachedTokens = u.GetInt("prompt_tokens_details", "cached_tokens")
	}
	return text, nil
}

// readStream reads server-sent events to their end.
func readStream(body io.Reader, o *Outcome, begun time.Time) error {
	r := bufio.NewReaderSize(body, 16<<10)
	sum := xxhash.New()
	var first, last time.Time
	ended, summed := false, false
	for {
		line, err := r.ReadBytes('\n')
		if err == io.EOF { // the rest is an incomplete line
			break
		}
		if err != nil {
			return fmt.Errorf("after %d bytes of text: %w", len(o.Text), err)
		}
		switch event := bytes.TrimSuffix(line, []byte("\n")); {
		case bytes.Equal(event, []byte("data: [DONE]")):
			ended = true
		case bytes.HasPrefix(event, []byte("data: ")):
			text, err := o.add(event[len("data: "):])
			if err != nil {
				return err
			}
			if text {
				last = time.Now()
				if first.IsZero() {
					first = last
				}
			}
		case bytes.HasPrefix(event, []byte(sim.StreamSumPrefix)):
			if got, want := fmt.Sprintf("%016x", sum.Sum64()), string(event[len(sim.StreamSumPrefix):]); got != want {
				return fmt.Errorf("%w: checksum %s, the engine's %s", ErrWrong, got, want)
			}
			summed = true
		}
		_, _ = sum.Write(line)
	}
	if !ended || !summed {
		return fmt.Errorf("%w: the stream broke off after %d bytes of text: %w", ErrWrong, len(o.Text), io.ErrUnexpectedEOF)
	}
	if !first.IsZero() {
		o.TTFT = first.Sub(begun)
	}
	if o.OutputTokens > 1 {
		o.TPOT = last.Sub(first) / time.Duration(o.OutputTokens-1)
	}
	return nil
}
