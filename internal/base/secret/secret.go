// SPDX-License-Identifier: Apache-2.0

// Package secret holds values that must not be printed or logged. It does not restrict
// access to them.
package secret

import (
	"fmt"
	"io"
)

// hidden is printed in place of a secret.
const hidden = "(secret)"

// Value holds a T that prints as hidden in fmt, logs and JSON. It is not comparable: ==
// would compare pointers. The zero value is empty. It holds a pointer to a pointer because
// fmt calls no methods of unexported fields and follows one pointer, but never two.
type Value[T any] struct {
	_ [0]func()
	p **T
}

// Hide keeps v.
func Hide[T any](v *T) Value[T] { return Value[T]{p: &v} }

// Get returns the hidden value. It panics for the zero Value.
func (v Value[T]) Get() *T { return *v.p }

// IsZero reports whether there is no value, so that Get would panic.
func (v Value[T]) IsZero() bool { return v.p == nil }

// String returns a placeholder.
func (Value[T]) String() string { return hidden }

// Format writes a placeholder, whatever the verb.
func (Value[T]) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, hidden) }

// MarshalText returns a placeholder, for JSON and logs.
func (Value[T]) MarshalText() ([]byte, error) { return []byte(hidden), nil }
