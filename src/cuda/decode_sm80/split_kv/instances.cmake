# decode_sm80's compiled kernels: one for each row of kConfigs (config.hpp) and type of Q.
# instances.cpp makes the list of them a table.
set(decode80_configs 16)
set(decode80_first_with_pairs 12)  # the rows from here on are those of decode_sm80/pairs
set(decode80_generated ${CMAKE_CURRENT_BINARY_DIR}/generated/decode_sm80/split_kv)
set(decode80_declarations "")
set(decode80_entries "")
set(type_Fp16 f16)
set(type_Bf16 bf16)
math(EXPR decode80_last_config "${decode80_configs} - 1")
foreach(INSTANCE_ELEMENT Fp16 Bf16)
  foreach(INSTANCE_CONFIG RANGE ${decode80_last_config})
    string(TOLOWER "decode80_${INSTANCE_ELEMENT}_config${INSTANCE_CONFIG}" INSTANCE_NAME)
    set(source ${decode80_generated}/${INSTANCE_NAME}.cu)
    set(family decode_sm80)
    math(EXPR group "${INSTANCE_CONFIG} / 4")
    set(group ${type_${INSTANCE_ELEMENT}}_group${group})
    if(INSTANCE_CONFIG GREATER_EQUAL 8)  # with a neighbour, functions that they share get other machine code
      set(group config${INSTANCE_CONFIG})
    endif()
    if(INSTANCE_CONFIG GREATER_EQUAL decode80_first_with_pairs)
      set(source ${CMAKE_CURRENT_BINARY_DIR}/generated/decode_sm80/pairs/${INSTANCE_NAME}.cu)
      set(family decode_sm80_pairs)
    endif()
    configure_file(decode_sm80/split_kv/instance.cu.in ${source} @ONLY)
    flashcore_cuda_sources(${family} LISTED GROUP ${group} SOURCES ${source})
    if(flashcore_cuda_compiled)
      string(APPEND decode80_declarations "InstanceEntry ${INSTANCE_NAME}();\n")
      string(APPEND decode80_entries
        "      {{InputType::${type_${INSTANCE_ELEMENT}}, ${INSTANCE_CONFIG}}, ${INSTANCE_NAME}()},\n")
    endif()
  endforeach()
endforeach()
configure_file(decode_sm80/split_kv/instance_list.hpp.in ${decode80_generated}/instance_list.hpp @ONLY)

flashcore_cuda_sources(decode_sm80 SOURCES decode_sm80/split_kv/combine.cu)
target_sources(flashcore_objects PRIVATE decode_sm80/split_kv/instances.cpp)
set_source_files_properties(decode_sm80/split_kv/instances.cpp TARGET_DIRECTORY flashcore_objects
  PROPERTIES INCLUDE_DIRECTORIES ${decode80_generated})
