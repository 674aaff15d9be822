package trace

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestAzure reads rows as in the public files, with CRLF and seven decimals, and as in copies with
// a zone. Requests have no sessions.
func TestAzure(t *testing.T) {
	const rows = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n" +
		"2023-11-16 18:15:46.6805900,374,44\r\n" +
		"2023-11-16 18:15:50.9951690+00:00,1100,109\r\n" +
		"2023-11-16 18:15:45.1805900,16,7\r\n"
	tr := read(t, rows, ReadOptions{})
	var got []string
	for _, r := range tr.Requests {
		got = append(got, fmt.Sprint(r.At, " ", r.Input, " ", r.Output, " ", len(r.Blocks), " ", r.Session))
	}
	want := "[0s 16 7 1 2 1.5s 374 44 1 0 5.814579s 1100 109 3 1]"
	if fmt.Sprint(got) != want || tr.Sessions != 3 || tr.Blocks != 5 || tr.Model != "sessions share nothing" {
		t.Errorf("got %v, want %s; %+v", got, want, tr)
	}
}

// TestBurst: later turns include the earlier ones, failed requests are omitted, and arrivals within
// a second are spread over it.
func TestBurst(t *testing.T) {
	const rows = `Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type
5,a,1.5,ChatGPT,40,18,58,Conversation log
5,,0.5,GPT-4,40,9,49,API log
45,a,2,ChatGPT,75,0,75,Conversation log
46,a,2,ChatGPT,75,31,106,Conversation log
99,a,2,ChatGPT,20,3,23,Conversation log
`
	tr := read(t, rows, ReadOptions{BlockSize: 10})
	if tr.Sessions != 2 || tr.Recorded.LeftOut != 1 || len(tr.Requests) != 4 || !strings.Contains(tr.Model, "goes on from the last") {
		t.Fatalf("%+v", tr)
	}
	of := func(input int, alone bool) *Request {
		i := slices.IndexFunc(tr.Requests, func(r Request) bool { return r.Input == input && (r.Output == 9) == alone })
		return &tr.Requests[i]
	}
	first, second, third, alone := of(40, false), of(75, false), of(20, false), of(40, true)
	if first.At >= time.Second || second.At < 41*time.Second || second.At >= 42*time.Second {
		t.Errorf("arrivals at %v and %v", first.At, second.At)
	}
	if !slices.Equal(second.Blocks[:4], first.Blocks) || len(second.Blocks) != 8 || !slices.Equal(third.Blocks, first.Blocks[:2]) || slices.Contains(first.Blocks, alone.Blocks[0]) {
		t.Errorf("blocks %v, %v, %v; alone %v", first.Blocks, second.Blocks, third.Blocks, alone.Blocks)
	}
	if !slices.Equal(first.Answer, second.Blocks[4:5]) {
		t.Errorf("answer %v", first.Answer)
	}
	older := "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,40,18,58,Conversation log\n6,ChatGPT,40,18,58,API log\n"
	if tr := read(t, older, ReadOptions{}); tr.Sessions != 2 || tr.Model != "sessions share nothing" {
		t.Errorf("%+v", tr)
	}
}

// TestSystemPrompts: sessions begin with the configured system prompts.
func TestSystemPrompts(t *testing.T) {
	var rows strings.Builder
	rows.WriteString("arrived_at,num_prefill_tokens,num_decode_tokens\n")
	for i := range 400 {
		fmt.Fprintf(&rows, "%.1f,57.0,3\n", float64(i)/10)
	}
	tr := read(t, rows.String(), ReadOptions{BlockSize: 10, Shared: Shared{Prompts: 4, Tokens: 35}})
	with := map[Block]int{}
	for _, r := range tr.Requests {
		if len(r.Blocks) != 6 {
			t.Fatalf("%+v", r)
		}
		with[r.Blocks[0]]++
	}
	most := 0
	for _, n := range with {
		most = max(most, n)
	}
	if len(with) != 4 || most < 140 || most > 250 || tr.Blocks != 4*3+400*3 {
		t.Errorf("prompts %v, %d blocks", with, tr.Blocks)
	}
}

// TestWindow: a part of a table is kept, and begins at 0.
func TestWindow(t *testing.T) {
	var rows strings.Builder
	rows.WriteString("TIMESTAMP,ContextTokens,GeneratedTokens\n")
	for i := range 100 {
		fmt.Fprintf(&rows, "2024-05-%02d 12:00:00,%d,3\n", 1+i%30, 1+i)
	}
	tr := read(t, rows.String(), ReadOptions{Begin: 24 * time.Hour, Length: 48 * time.Hour, Spread: -1})
	for _, r := range tr.Requests {
		if day := (r.Input - 1) % 30; (day != 1 && day != 2) || r.At != time.Duration(day-1)*24*time.Hour {
			t.Errorf("%+v", r)
		}
	}
	if len(tr.Requests) != 8 {
		t.Errorf("%d requests", len(tr.Requests))
	}
}

func TestTablesRefuse(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		_, err := Read(strings.NewReader(text), ReadOptions{})
		if !errors.Is(err, ErrTrace) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	const azure = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
	f("what,is,this\n1,2,3\n", "neither lines of JSON nor a table")
	f(azure, "no request")
	f(azure+"yesterday,1,2\n", `line 2: timestamp "yesterday"`)
	f(azure+"1,1,2\n1e300,1,2\n", "line 3: timestamp")
	f(azure+"1,-1,2\n", `tokens "-1"`)
	f(azure+"1,1.5,2\n", `tokens "1.5"`)
	f(azure+"1,2\n", "wrong number of fields")
	f(azure+"0,1,2\n9e6,1,2\n", "it spans")
	f(`{"timestamp":0`, "line 1")
	if _, err := Read(strings.NewReader(`{}`), ReadOptions{Begin: 1}); !errors.Is(err, ErrTrace) {
		t.Errorf("lines were begun later: %v", err)
	}
	if _, err := Read(strings.NewReader(azure), ReadOptions{Shared: Shared{Prompts: 1e9, Tokens: 1}}); !errors.Is(err, ErrTrace) {
		t.Errorf("a billion system prompts: %v", err)
	}
}

// TestTalks: each answer is a request whose prompt is all before it.
func TestTalks(t *testing.T) {
	long := strings.Repeat("0123456789", 12) // 30 tokens
	text := fmt.Sprintf(`[
{"id":"a","conversations":[{"from":"human","value":%q},{"from":"gpt","value":%q},{"from":"human","value":"and?"},{"from":"gpt","value":"no"}]},
{"id":"b","conversations":[{"from":"gpt","value":"greetings"},{"from":"human","value":%q},{"from":"gpt","value":""}]},
{"id":"c","conversations":[{"from":"human","value":"nobody answers"}]}, {}]`, long, long, long)
	tr := read(t, text, ReadOptions{BlockSize: 10})
	if len(tr.Requests) != 3 || tr.Sessions != 4 || !strings.Contains(tr.Model, "4 bytes") {
		t.Fatalf("%+v", tr)
	}
	by := map[int]Request{}
	for _, r := range tr.Requests {
		by[r.Input] = r
	}
	first, second, greeted := by[30], by[61], by[33]
	if first.Output != 30 || second.Output != 1 || greeted.Output != 1 || first.Session != second.Session || first.Session == greeted.Session {
		t.Errorf("%+v", by)
	}
	if len(second.Blocks) != 7 || !slices.Equal(second.Blocks[:3], first.Blocks) || slices.Contains(greeted.Blocks, first.Blocks[0]) {
		t.Errorf("blocks %v, %v, %v", first.Blocks, second.Blocks, greeted.Blocks)
	}
	for _, bad := range []string{"[", "[1]", `[{"conversations":7}]`, `[{"conversations":[{"from":"gpt","value":"x"`, "[]"} {
		if _, err := Read(strings.NewReader(bad), ReadOptions{}); !errors.Is(err, ErrTrace) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if _, err := Read(strings.NewReader(`[{"conversations":[{"from":"human","value":"`+strings.Repeat("x", maxConversation+1<<16)+`"}]}]`), ReadOptions{}); !errors.Is(err, errTooLong) {
		t.Errorf("a conversation without an end: %v", err)
	}
}
