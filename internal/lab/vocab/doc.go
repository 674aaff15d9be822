// Package vocab is the built-in vocabulary of simulated engines: a small byte-level BPE, whose
// encoder walks a trie, and a chat template. WriteModel writes it as the files of a real model.
// Programs that read these files compute the same tokens as the engine.
//
// The tokens are the 256 bytes, every prefix of " word" for some five hundred words, and three
// special tokens. Each merge joins a prefix of " word" with the next letter. A space before a
// letter always begins a pre-token, and a pre-token has one space. So at most one merge applies at
// any time, and byte-pair encoding gives the same result as the longest walk in the trie.
package vocab
