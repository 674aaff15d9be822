// Package media names images as engines name them, so that a prompt can be followed past
// them: vLLM names an image by the uuid that the client gave, or by a hash of the file.
//
//  1. Names.Name names an item of a request. A file is decoded and hashed piece by
//     piece; nothing of it is kept.
//  2. What is hashed besides the file depends on vLLM's version and on how the engine was
//     told the model. Names.Announced hears the names that engines announce: the
//     first that is equal to one way of hashing says which way theirs is.
//
// What it does not do: fetch URLs, decode pictures. Sounds and videos have names only
// where the client gave one, since engines hash what they decode from these.
//
// A Names is safe for concurrent use.
package media
