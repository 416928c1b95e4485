// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package testutil

import "testing"

// Beside has f run again and again beside a test until that ends.
func Beside(t testing.TB, f func()) {
	ending, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-ending:
				return
			default:
				f()
			}
		}
	}()
	t.Cleanup(func() {
		close(ending)
		<-ended
	})
}
