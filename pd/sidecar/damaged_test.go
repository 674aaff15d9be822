package sidecar

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
)

// transferFrom032 has the fields of a real answer of vLLM 0.32.
var transferFrom032 = []struct{ key, value string }{
	{"do_remote_prefill", "true"}, {"do_remote_decode", "false"}, {"remote_block_ids", "[[1,2,3]]"}, {"remote_engine_id", `"189a"`},
	{"remote_request_id", `"cmpl-8-0-8f"`}, {"remote_host", `"10.0.0.1"`}, {"remote_port", "5600"}, {"tp_size", "1"}, {"dcp_size", "1"}, {"pp_size", "1"},
	{"remote_num_tokens", "96"}, {"remote_blocks_expiry_time", "null"}, {"transfer_mode", `"pull"`}, {"remote_prefill_cached_tokens", "0"},
}

// damaged returns the transfer objects in which one field is missing, empty, of another type, foreign, or
// there twice.
func damaged() (list []string) {
	wrong := []string{"null", `""`, `"x"`, "[]", "[[]]", "[null]", `[["a"]]`, "{}", "true", "false", "-1", "0", "1.5", "70000", "1e99", `"\u0000"`}
	with := func(at int, fields ...string) string {
		var all []string
		for i, f := range transferFrom032 {
			if i == at {
				all = append(all, fields...)
				continue
			}
			all = append(all, fmt.Sprintf("%q:%s", f.key, f.value))
		}
		return "{" + strings.Join(all, ",") + "}"
	}
	for i, f := range transferFrom032 {
		good := fmt.Sprintf("%q:%s", f.key, f.value)
		list = append(list, with(i), with(i, good, good), with(i, good, `"foreign":{"a":[1]}`))
		for _, w := range wrong {
			bad := fmt.Sprintf("%q:%s", f.key, w)
			list = append(list, with(i, bad), with(i, good, bad), with(i, bad, good))
		}
	}
	return list
}

// readsLikeVLLM does with an object what vLLM's NIXL connector does, and returns the harm: the engine
// ends, or the request waits forever. It shares no code with the proxy.
func readsLikeVLLM(text string) (harm string) {
	var o map[string]any // the last one of equal keys counts, as in Python
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return "" // the request is refused with 400
	}
	truthy := func(v any) bool {
		switch v := v.(type) {
		case nil:
			return false
		case bool:
			return v
		case float64:
			return v != 0
		case string:
			return v != ""
		case []any:
			return len(v) > 0
		case map[string]any:
			return len(v) > 0
		}
		return true
	}
	if !truthy(o["do_remote_prefill"]) {
		if truthy(o["do_remote_decode"]) {
			return "blocks are kept that nobody reads"
		}
		return ""
	}
	for _, key := range []string{"remote_engine_id", "remote_request_id", "remote_host", "remote_port"} {
		if v, has := o[key]; !has || v == nil {
			return "waits forever without " + key
		}
	}
	groups, ok := o["remote_block_ids"].([]any)
	if !ok || len(groups) == 0 {
		return "ends: assertion on remote_block_ids"
	}
	named := 0
	for _, g := range groups {
		ids, ok := g.([]any)
		if !ok {
			return "ends: a group is not a list"
		}
		named += len(ids)
		for _, id := range ids {
			if n, ok := id.(float64); !ok || n < 0 || n != float64(int64(n)) {
				return "ends: a block is not a number"
			}
		}
	}
	if named == 0 {
		return "ends: fewer blocks than it needs"
	}
	for _, key := range []string{"remote_engine_id", "remote_request_id", "remote_host"} {
		if s, ok := o[key].(string); !ok || s == "" {
			return "ends: type of " + key
		}
	}
	for key, least := range map[string]float64{"remote_port": 1, "tp_size": 1, "dcp_size": 1, "pp_size": 1, "remote_num_tokens": 0, "remote_prefill_cached_tokens": 0} {
		v, has := o[key]
		if n, ok := v.(float64); has && v != nil && (!ok || n < least || n != float64(int64(n)) || key == "remote_port" && n > 65535) {
			return "ends: type of " + key
		}
	}
	return ""
}

// TestDamagedTransfers: whatever a prefill engine answers in place of a field, decode answers the client,
// and gets no object that ends it or makes it wait forever.
func TestDamagedTransfers(t *testing.T) {
	list := damaged()
	passed := 0
	for _, object := range list {
		l := &legsOf{prefill: `{"kv_transfer_params":` + object + `}`, decode: []*http.Response{said(`{"choices":[]}`, "application/json")}}
		w := asked(t, Options{Transport: l}, `{"messages":[]}`)
		if w.Code != http.StatusOK || len(l.bodies) != 1 {
			t.Fatalf("%s: status %d after %d legs, want 200 after one", object, w.Code, len(l.bodies))
		}
		got := kvtransfer.Find([]byte(l.bodies[0]), keyKVTransfer)
		if got == nil {
			continue
		}
		passed++
		if harm := readsLikeVLLM(string(got)); harm != "" {
			t.Errorf("%s reaches decode, which %s", got, harm)
		}
	}
	whole := slices.IndexFunc(list, func(o string) bool { return readsLikeVLLM(o) == "" })
	if len(list) < 500 || passed < 100 || whole < 0 {
		t.Errorf("%d objects, %d of them passed on: too few to prove anything", len(list), passed)
	}
}
