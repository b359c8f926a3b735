// Kernels by name, and what a cubin tells about its own.
#include "fake.h"

#include <elf.h>

namespace fake {
CUfunc_st* makeKernel(const std::string& name) {
  Lock l(mu);
  static auto* all = new std::unordered_map<std::string, CUfunc_st*>;
  auto& f = (*all)[name];
  if (!f) {
    f = new CUfunc_st;
    f->name = name;
  }
  return f;
}
void loadImage(CUmod_st* m, const void* image) {
  auto* h = (const Elf64_Ehdr*)image;
  if (memcmp(h->e_ident, ELFMAG, SELFMAG) != 0) return;
  m->elf = true;
  auto* sec = (const Elf64_Shdr*)((const char*)image + h->e_shoff);
  auto* names = (const char*)image + sec[h->e_shstrndx].sh_offset;
  for (int i = 0; i < h->e_shnum; i++) {
    std::string name = names + sec[i].sh_name;
    if (name.rfind(".text.", 0) == 0) m->regs[name.substr(6)] = sec[i].sh_info >> 24;
  }
  const Elf64_Sym* symbols = nullptr;
  const char* strings = nullptr;
  for (int i = 0; i < h->e_shnum; i++)
    if (sec[i].sh_type == SHT_SYMTAB) {
      symbols = (const Elf64_Sym*)((const char*)image + sec[i].sh_offset);
      strings = (const char*)image + sec[sec[i].sh_link].sh_offset;
    }
  for (int i = 0; symbols && i < h->e_shnum; i++) {
    if (strcmp(names + sec[i].sh_name, ".nv.info") != 0) continue;
    auto* at = (const unsigned char*)image + sec[i].sh_offset;
    auto* stop = at + sec[i].sh_size;
    while (at + 4 <= stop) {  // format, attribute, size; then, with format 4, that many bytes
      uint16_t size;
      memcpy(&size, at + 2, 2);
      if (at[0] == 4 && at[1] == 0x2f && size >= 8) {  // registers of a function
        u32 pair[2];
        memcpy(pair, at + 4, 8);
        std::string name = strings + symbols[pair[0]].st_name;
        if (m->regs.count(name)) m->regs[name] = (int)pair[1];
      }
      at += 4 + (at[0] == 4 ? size : 0);
    }
  }
}

}  // namespace fake
