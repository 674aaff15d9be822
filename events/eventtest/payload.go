package eventtest

import "github.com/tinylib/msgp/msgp"

// StorePayload returns a batch as published by vLLM >= 0.24: events in map form. Each event has
// blocks blocks of 16 tokens, which follow the blocks of the previous event.
func StorePayload(events, blocks int) []byte {
	p := msgp.AppendArrayHeader(nil, 3)
	p = msgp.AppendFloat64(p, 1757500000.25)
	p = msgp.AppendArrayHeader(p, uint32(events))
	hash, id := uint64(1)<<63, uint32(0)
	for range events {
		parent := hash
		p = msgp.AppendMapHeader(p, 11)
		p = msgp.AppendString(msgp.AppendString(p, "type"), "BlockStored")
		p = msgp.AppendArrayHeader(msgp.AppendString(p, "block_hashes"), uint32(blocks))
		for range blocks {
			hash += 0x9e3779b97f4a7c15
			p = msgp.AppendUint64(p, hash)
		}
		p = msgp.AppendUint64(msgp.AppendString(p, "parent_block_hash"), parent)
		p = msgp.AppendArrayHeader(msgp.AppendString(p, "token_ids"), uint32(16*blocks))
		for range 16 * blocks {
			id = (id*1103515245 + 12345) % 150_000
			p = msgp.AppendUint32(p, id)
		}
		p = msgp.AppendInt(msgp.AppendString(p, "block_size"), 16)
		p = msgp.AppendNil(msgp.AppendString(p, "lora_id"))
		p = msgp.AppendString(msgp.AppendString(p, "medium"), "GPU")
		p = msgp.AppendNil(msgp.AppendString(p, "lora_name"))
		p = msgp.AppendArrayHeader(msgp.AppendString(p, "extra_keys"), uint32(blocks))
		for range blocks {
			p = msgp.AppendNil(p)
		}
		p = msgp.AppendInt(msgp.AppendString(p, "group_idx"), 0)
		p = msgp.AppendString(msgp.AppendString(p, "kv_cache_spec_kind"), "full_attention")
	}
	return msgp.AppendInt(p, 0)
}
