// Package media computes the names that engines give to images, so that a prompt can be matched
// beyond them. vLLM names an image by the uuid that the client sent, or by a hash of the file.
//
//  1. Names.Name names an item of a request. A file is decoded and hashed in chunks and not
//     retained.
//  2. The hash also covers data that depends on vLLM's version and on the engine's model name.
//     Names.Add receives the names that engines announce. The first name that equals one of
//     the hashing variants selects that variant.
//
// The package does not fetch URLs or decode pictures. Sounds and videos have names only if the
// client sent one, because engines hash their decoded form.
//
// A Names is safe for concurrent use.
package media
