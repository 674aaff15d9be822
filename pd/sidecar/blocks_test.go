package sidecar

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// pageOf is a metrics page of vLLM 0.32.
func pageOf(block int, window, mamba string, started int) string {
	return fmt.Sprintf("process_start_time_seconds %d\n%s{_block_size_resolved=\"True\",block_size=\"%d\",mamba_block_size=%q,sliding_window=%q} 1.0\n", started, cacheInfo, block, mamba, window)
}

// naming is a pair whose prefill engine answers with chosen numbers of blocks.
type naming struct {
	page, answer string
	pages        int      // readings of the page
	legs         []string // bodies at the decode engine
}

// RoundTrip implements http.RoundTripper.
func (n *naming) RoundTrip(r *http.Request) (*http.Response, error) {
	switch {
	case r.URL.Path == "/metrics" && n.page == "":
		n.pages++
		return &http.Response{StatusCode: http.StatusNotFound, Body: http.NoBody}, nil
	case r.URL.Path == "/metrics":
		n.pages++
		return said(n.page, "text/plain"), nil
	case r.Method == http.MethodGet:
		return said("", ""), nil
	case strings.HasPrefix(r.URL.Host, "10."):
		return said(n.answer, "application/json"), nil
	}
	body, err := io.ReadAll(r.Body)
	n.legs = append(n.legs, string(body))
	return said(`{"choices":[{"message":{"content":"x"}}]}`, "application/json"), err
}

// transferOf is an answer of a prefill engine with numbers of blocks by group.
func transferOf(tokens int, more string, groups ...int) string {
	var list []string
	for _, g := range groups {
		list = append(list, "["+strings.TrimSuffix(strings.Repeat("7,", g), ",")+"]")
	}
	return fmt.Sprintf(`{"usage":{"prompt_tokens":%d},"kv_transfer_params":{"remote_block_ids":[%s],"remote_request_id":"r","remote_engine_id":"e","remote_host":"10.0.0.1","remote_port":5600%s}}`,
		tokens, strings.Join(list, ","), more)
}

// TestTooFewBlocks: a transfer that is proven to name fewer blocks than the prompt has does not reach the decode
// engine, which computes the prompt. Without proof, it does.
func TestTooFewBlocks(t *testing.T) {
	plain := pageOf(16, "None", "None", 1)
	for _, c := range []struct {
		name, page string
		before     []string // answers that are used
		answer     string
		used       bool
	}{
		{"all blocks", plain, nil, transferOf(100, "", 7), true},
		{"full blocks only", plain, nil, transferOf(100, "", 6), true},
		{"more blocks", plain, nil, transferOf(100, "", 9), true},
		{"one of seven", plain, nil, transferOf(100, "", 1), false},
		{"five of seven", plain, nil, transferOf(100, "", 5), false},
		{"less than a block", plain, nil, transferOf(9, "", 1), true},
		{"six of seven, partial blocks named before", plain, []string{transferOf(20, "", 2)}, transferOf(100, "", 6), false},
		{"six of six, partial blocks named before", plain, []string{transferOf(20, "", 2)}, transferOf(96, "", 6), true},
		{"without a page", "", []string{transferOf(100, "", 7)}, transferOf(100, "", 1), true},
		{"without a block size", "other 1\n", []string{transferOf(100, "", 7)}, transferOf(100, "", 1), true},
		{"without usage, by the tokens of the transfer", plain, nil, transferOf(0, `,"remote_num_tokens":100`, 1), false},
		{"hybrid model that leaves tokens to decode", plain, nil, transferOf(97, `,"remote_num_tokens":95`, 5), true},
		{"context parallelism", plain, nil, transferOf(100, `,"dcp_size":2`, 4), true},
		{"push", plain, nil, transferOf(100, `,"transfer_mode":"push"`, 1), true},
		{"window, longest prompt so far", pageOf(16, "32", "None", 1), []string{transferOf(60, "", 4)}, transferOf(100, "", 3), true},
		{"window, shorter than a prompt before", pageOf(16, "512", "None", 1), []string{transferOf(200, "", 13)}, transferOf(100, "", 3), false},
		{"Mamba alone", pageOf(16, "None", "16", 1), nil, transferOf(100, "", 1), true},
		{"two groups, the first transfer", plain, nil, transferOf(100, "", 3, 3), true},
		{"two groups, shorter than a prompt before", plain, []string{transferOf(200, "", 13, 3)}, transferOf(100, "", 3, 3), false},
		{"two groups, longer than prompts before", plain, []string{transferOf(90, "", 6, 3)}, transferOf(200, "", 3, 3), true},
	} {
		n := &naming{page: c.page}
		s, err := New(Options{Engine: "http://127.0.0.1:8200", Transport: n, Head: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		for i, answer := range append(c.before, c.answer) {
			n.answer = answer
			r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(`{"messages":[]}`))
			r.Header.Set(headerPrefiller, "10.0.0.1:8000")
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			want := i < len(c.before) || c.used
			if got := strings.Contains(n.legs[i], keyKVTransfer); w.Code != http.StatusOK || got != want || len(n.legs) != i+1 {
				t.Errorf("%s, transfer %d: status %d, transfer used: %v, %d legs; want used: %v", c.name, i, w.Code, got, len(n.legs), want)
			}
		}
		if most := map[bool]int{true: 1, false: 2}[c.used]; n.pages > most {
			t.Errorf("%s: the page is read %d times, want %d at most", c.name, n.pages, most)
		}
	}
}

// TestBlockSizeChanges: before a transfer is rejected, the page is read again, because another engine may be at the
// address. An engine whose transfers never agree with its page is used after some.
func TestBlockSizeChanges(t *testing.T) {
	n := &naming{page: pageOf(16, "None", "None", 1)}
	s, err := New(Options{Engine: "http://127.0.0.1:8200", Transport: n, Head: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	used := func(answer string) bool {
		n.answer = answer
		r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(`{"messages":[]}`))
		r.Header.Set(headerPrefiller, "10.0.0.1:8000")
		s.ServeHTTP(httptest.NewRecorder(), r)
		return strings.Contains(n.legs[len(n.legs)-1], keyKVTransfer)
	}
	if !used(transferOf(100, "", 7)) || used(transferOf(100, "", 2)) {
		t.Error("blocks of 16: seven of seven are not used, or two are")
	}
	n.page = pageOf(64, "None", "None", 2)
	if !used(transferOf(100, "", 2)) || used(transferOf(200, "", 2)) {
		t.Error("blocks of 64: two of two are not used, or two of four are")
	}
	n.page = pageOf(16, "None", "None", 3) // not the size in its transfers
	for i := range maxUnproven + 2 {
		if got, want := used(transferOf(200, "", 2)), i >= maxUnproven; got != want {
			t.Errorf("transfer %d of a page that is wrong: used %v, want %v", i, got, want)
		}
	}
}
