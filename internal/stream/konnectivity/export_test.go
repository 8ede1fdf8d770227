// SPDX-License-Identifier: Apache-2.0

package konnectivity

// Bound has the listeners of a frontend take so many streams.
func (f *Frontend) Bound(streams int) { f.most = streams }
