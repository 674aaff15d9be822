// Package vocab is the built-in vocabulary of simulated engines: a byte-level
// BPE small enough to be read, whose encoder is a walk in a trie, and a chat
// template. WriteModel writes it as the files that a real model comes with, so
// that whatever reads those files sees the tokens that the engine computes.
//
// Tokens are the 256 bytes, every prefix of " word" for some five hundred
// words, and three special tokens. Each merge joins a prefix of " word" with
// the next letter. A space before a letter always begins a pre-token, and a
// pre-token has one space, so at any time one merge at most applies: byte-pair
// encoding and the longest walk in the trie are the same.
package vocab
