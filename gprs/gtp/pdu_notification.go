// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gtp

import "net/netip"

// PDUNotificationRequest says that packets wait for a user without a context (TS 29.060
// section 7.3.8). Version 0 has the address alone; its user is in the TID (TS 09.60
// section 7.5.8).
type PDUNotificationRequest struct {
	EndUserAddress EndUserAddress
	Private        Optional[PrivateExtension]

	// Version 1.
	IMSI           IMSI
	TEIDControl    uint32
	APN            APN
	PCO            Optional[PCO]
	AddressControl netip.Addr
}

// Type returns [TypePDUNotificationRequest].
func (*PDUNotificationRequest) Type() MessageType { return TypePDUNotificationRequest }

func (m *PDUNotificationRequest) walk(w *walk) {
	if w.version == V0 {
		if !w.writing {
			*m = PDUNotificationRequest{}
		}
		value(w, ElementEndUserAddress, &m.EndUserAddress, endUserAddress)
	} else {
		value(w, ElementIMSI, &m.IMSI, imsi)
		value(w, ElementTEIDControl, &m.TEIDControl, uint32s)
		value(w, ElementEndUserAddress, &m.EndUserAddress, endUserAddress)
		value(w, ElementAPN, &m.APN, apn)
		element(w, ElementPCO, optional, &m.PCO, pco)
		value(w, ElementGSNAddress, &m.AddressControl, address)
	}
	element(w, ElementPrivateExtension, optional, &m.Private, privateExtension)
}

// PDUNotificationResponse answers a [PDUNotificationRequest] (TS 29.060 section 7.3.9).
type PDUNotificationResponse struct {
	Cause   Cause
	Private Optional[PrivateExtension]
}

// Type returns [TypePDUNotificationResponse].
func (*PDUNotificationResponse) Type() MessageType { return TypePDUNotificationResponse }

func (m *PDUNotificationResponse) walk(w *walk) { walkCause(w, &m.Cause, &m.Private) }

// PDUNotificationRejectRequest says that the terminal opened no context after all (TS
// 29.060 section 7.3.10). Version 0 has cause and address alone.
type PDUNotificationRejectRequest struct {
	Cause          Cause
	EndUserAddress EndUserAddress
	Private        Optional[PrivateExtension]

	// Version 1.
	TEIDControl uint32
	APN         APN
	PCO         Optional[PCO]
}

// Type returns [TypePDUNotificationRejectRequest].
func (*PDUNotificationRejectRequest) Type() MessageType { return TypePDUNotificationRejectRequest }

func (m *PDUNotificationRejectRequest) walk(w *walk) {
	value(w, ElementCause, &m.Cause, cause)
	if w.version == V0 {
		if !w.writing {
			*m = PDUNotificationRejectRequest{Cause: m.Cause}
		}
		value(w, ElementEndUserAddress, &m.EndUserAddress, endUserAddress)
	} else {
		value(w, ElementTEIDControl, &m.TEIDControl, uint32s)
		value(w, ElementEndUserAddress, &m.EndUserAddress, endUserAddress)
		value(w, ElementAPN, &m.APN, apn)
		element(w, ElementPCO, optional, &m.PCO, pco)
	}
	element(w, ElementPrivateExtension, optional, &m.Private, privateExtension)
}

// PDUNotificationRejectResponse answers a [PDUNotificationRejectRequest] (TS 29.060
// section 7.3.11).
type PDUNotificationRejectResponse struct {
	Cause   Cause
	Private Optional[PrivateExtension]
}

// Type returns [TypePDUNotificationRejectResponse].
func (*PDUNotificationRejectResponse) Type() MessageType { return TypePDUNotificationRejectResponse }

func (m *PDUNotificationRejectResponse) walk(w *walk) { walkCause(w, &m.Cause, &m.Private) }

// walkCause goes over the elements of a response that has a cause alone.
func walkCause(w *walk, c *Cause, private *Optional[PrivateExtension]) {
	value(w, ElementCause, c, cause)
	element(w, ElementPrivateExtension, optional, private, privateExtension)
}
