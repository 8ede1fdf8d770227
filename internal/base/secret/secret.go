// SPDX-License-Identifier: Apache-2.0

// Package secret holds values that must not be shown. It does not keep them from
// whoever asks for them.
package secret

import (
	"fmt"
	"io"
)

// hidden is what a secret looks like.
const hidden = "(secret)"

// Value holds a T that prints as hidden in fmt, logs and JSON, and that == does not
// take: it would compare pointers. The zero value is none. fmt calls no methods of
// unexported fields and then follows a pointer, but never a pointer to a pointer.
type Value[T any] struct {
	_ [0]func()
	p **T
}

// Hide keeps v.
func Hide[T any](v *T) Value[T] { return Value[T]{p: &v} }

// Get is what is hidden. It panics for the zero value.
func (v Value[T]) Get() *T { return *v.p }

// IsZero reports whether there is nothing; to use it then is a defect that panics.
func (v Value[T]) IsZero() bool { return v.p == nil }

// String shows nothing.
func (Value[T]) String() string { return hidden }

// Format shows nothing, whatever the verb.
func (Value[T]) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, hidden) }

// MarshalText shows nothing, in JSON and in logs too.
func (Value[T]) MarshalText() ([]byte, error) { return []byte(hidden), nil }
