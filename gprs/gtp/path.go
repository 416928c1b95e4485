// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gtp

// EchoRequest asks a peer whether it lives (TS 29.060 section 7.2.1).
type EchoRequest struct {
	Private Optional[PrivateExtension]
}

// Type returns [TypeEchoRequest].
func (*EchoRequest) Type() MessageType { return TypeEchoRequest }

func (m *EchoRequest) walk(w *walk) {
	element(w, ElementPrivateExtension, optional, &m.Private, privateExtension)
}

// EchoResponse says how often the peer has started (TS 29.060 section 7.2.2). On the
// user plane of version 1 the value is sent as 0 and ignored (TS 29.281 section 7.2.2).
type EchoResponse struct {
	Recovery uint8
	Private  Optional[PrivateExtension]
}

// Type returns [TypeEchoResponse].
func (*EchoResponse) Type() MessageType { return TypeEchoResponse }

func (m *EchoResponse) walk(w *walk) {
	value(w, ElementRecovery, &m.Recovery, octet)
	element(w, ElementPrivateExtension, optional, &m.Private, privateExtension)
}

// VersionNotSupported answers a message of another version. The version in its header
// is the highest that the sender speaks (TS 29.060 section 7.2.3).
type VersionNotSupported struct{}

// Type returns [TypeVersionNotSupported].
func (*VersionNotSupported) Type() MessageType { return TypeVersionNotSupported }

func (*VersionNotSupported) walk(*walk) {}

// SupportedExtensions lists extension headers that the sender understands (TS 29.060
// section 7.2.4).
type SupportedExtensions struct {
	List []byte // one [ExtensionType] in each octet
}

// Type returns [TypeSupportedExtensions].
func (*SupportedExtensions) Type() MessageType { return TypeSupportedExtensions }

func (m *SupportedExtensions) walk(w *walk) { value(w, ElementExtensionList, &m.List, octets) }

// EndMarker says that no more user packets follow in a tunnel (TS 29.281 section
// 7.3.2).
type EndMarker struct {
	Private Optional[PrivateExtension]
}

// Type returns [TypeEndMarker].
func (*EndMarker) Type() MessageType { return TypeEndMarker }

func (m *EndMarker) walk(w *walk) {
	element(w, ElementPrivateExtension, optional, &m.Private, privateExtension)
}
