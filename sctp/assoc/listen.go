// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

// SetListen says whether peers may set up associations from now on.
func (e *Endpoint) SetListen(on bool) { e.config.Listen = on }
