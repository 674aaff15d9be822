// Package sse cuts answers into their events, where they lie, without copies.
package sse
