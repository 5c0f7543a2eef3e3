# Run by ctest: cmake -DNM=… -DOBJECTS=… -P check_isa_symbols.cmake
# A source compiled for one instruction set must not define an inline function that other sources define too: the linker keeps one
# copy of such "weak" symbols, and it might be the one that older processors cannot run. Names of the set's own namespace are fine;
# so is what the undefined-behaviour sanitizer adds, type information, which holds no instructions.
foreach(object IN LISTS OBJECTS)
  execute_process(COMMAND ${NM} -C --defined-only ${object} OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
  string(REPLACE ";" "," symbols "${symbols}")
  string(REPLACE "\n" ";" lines "${symbols}")
  foreach(line IN LISTS lines)
    if(line MATCHES " [WVu] " AND NOT line MATCHES "avx2::|avx512::|avx512bf16::|avx512vnni::|amx::|DW.ref.|V typeinfo (name )?for ")
      message(SEND_ERROR "${object} defines a shared inline symbol: ${line}")
    endif()
  endforeach()
endforeach()
